use rolling_kv_stage::*;
use std::path::Path;
fn main() -> std::result::Result<(), Failure> {
    let r = Reporter::new(|e| eprintln!("{e:?}"));
    let v = if std::env::args().nth(1).as_deref() == Some("stock") {
        Variant::Stock
    } else {
        Variant::Patched
    };
    let targets: Vec<String> = std::env::args().skip(2).collect();
    let t: Vec<&str> = targets.iter().map(|s| s.as_str()).collect();
    let plan = Plan::for_repo(Path::new("/work/main"), Path::new("/work/main/target"), v)?
        .with_reporter(r);
    let now = std::time::Instant::now();
    let s = plan.stage()?;
    eprintln!("staged {:?}", now.elapsed());
    let b = s.compile(&t)?;
    eprintln!("built {:?}", now.elapsed());
    if v == Variant::Patched {
        b.bind(Path::new("/tmp/rkv/bindings.rs"))?;
        eprintln!("bound {:?}", now.elapsed());
    }
    b.print_cargo_metadata();
    Ok(())
}
