use rolling_kv::Context;

fn misuse<'a>(context: &Context<'a>) -> Context<'a> {
    Context::clone(context)
}

fn main() {}
