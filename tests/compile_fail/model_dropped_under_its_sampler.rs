use rolling_kv::{Model, Sampler, Token};

fn misuse(model: Model) {
    let mut sampler = Sampler::builder().grammar("root ::= \"a\"", "root").greedy().build(&model).unwrap();
    drop(model);
    sampler.accept(Token(1)).unwrap();
}

fn main() {}
