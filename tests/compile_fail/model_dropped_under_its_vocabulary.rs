use rolling_kv::Model;

fn misuse(model: Model) {
    let vocab = model.vocab();
    drop(model);
    vocab.bos();
}

fn main() {}
