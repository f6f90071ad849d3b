use rolling_kv::{Backend, Model, ModelParams};

fn misuse() {
    let backend = Backend { _started: () };
    Model::load(&backend, "model.gguf", &ModelParams::default()).unwrap();
}

fn main() {}
