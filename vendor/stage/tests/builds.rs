//! The whole way on the fixture: cmake, stubs and declarations, in folders with blanks in their names.

mod common;

use common::{Fixture, assert_says, build, has_tools};
use rolling_kv_stage::{Event, Plan, Reporter, Variant};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, Mutex};

/// The steps that the build tool took.
fn steps(plan: &Plan) -> Vec<String> {
    let events: Arc<Mutex<Vec<Event>>> = Arc::default();
    let sink = events.clone();
    let plan = plan.clone().with_reporter(Reporter::new(move |event| {
        sink.lock().unwrap().push(event.clone())
    }));
    build(&plan);
    let events = events.lock().unwrap();
    events
        .iter()
        .filter_map(|event| {
            if let Event::Building { what, .. } = event {
                Some(what.clone())
            } else {
                None
            }
        })
        .collect()
}

/// Links a C program with the stubs and runs it without a library path.
fn run(fixture: &Fixture, plan: &Plan, body: &str) -> String {
    let (source, program) = (
        fixture.scratch().join("main.c"),
        fixture.scratch().join("main program"),
    );
    let text = format!("#include <stdint.h>\n#include <stdio.h>\n{body}");
    std::fs::write(&source, text).unwrap();
    let cc = Command::new("cc")
        .arg(&source)
        .arg("-o")
        .arg(&program)
        .arg("-L")
        .arg(plan.dir().join("link"))
        .args(["-lllama", "-lggml", "-lggml-base"])
        .output()
        .unwrap();
    assert!(
        cc.status.success(),
        "{}",
        String::from_utf8_lossy(&cc.stderr)
    );
    let output = Command::new(&program)
        .env_remove("LD_LIBRARY_PATH")
        .output()
        .unwrap();
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    String::from_utf8(output.stdout).unwrap()
}

const RING: &str = "extern int32_t llama_ring_count;\nint32_t llama_ring(void *);\nconst char * rkv_build_stamp(void);\n\
    int main(void) { int64_t bell[3] = {0}; int32_t n = llama_ring(bell); printf(\"%d %d %s\\n\", n, llama_ring_count, rkv_build_stamp()); }\n";

#[test]
fn linked_program_finds_the_libraries_by_their_path() {
    if !has_tools() {
        return;
    }
    let fixture = Fixture::new();
    let plan = fixture.plan(Variant::Patched);
    let built = build(&plan);
    let printed = run(&fixture, &plan, RING);
    assert_says(&printed, &["142 141 llama.cpp abc1234, patches "]);
    let elf = std::fs::read(fixture.scratch().join("main program")).unwrap();
    let wanted = built.bin_dir().join("libllama.so.0");
    assert!(wanted.is_absolute());
    let wanted = wanted.to_str().unwrap().as_bytes();
    assert!(
        elf.windows(wanted.len()).any(|window| window == wanted),
        "the program does not name {}",
        built.bin_dir().display()
    );
}

#[test]
fn stock_library_lacks_the_marker() {
    if !has_tools() {
        return;
    }
    let fixture = Fixture::new();
    let plan = fixture.plan(Variant::Stock);
    build(&plan);
    assert_eq!(
        run(
            &fixture,
            &plan,
            "int32_t llama_knock(void);\nint main(void) { printf(\"%d\\n\", llama_knock()); }\n"
        ),
        "1\n"
    );
    let stub = std::fs::read_to_string(plan.dir().join("link/llama.s")).unwrap();
    assert_says(
        &stub,
        &[
            ".globl llama_ring\n",
            ".type llama_ring_count, %object\n.size llama_ring_count, 4\n",
        ],
    );
    assert!(
        !stub.contains("rkv"),
        "a stock library has a symbol of ours:\n{stub}"
    );
}

#[test]
fn second_build_does_nothing_and_a_touched_kernel_is_one_object() {
    if !has_tools() {
        return;
    }
    let fixture = Fixture::new();
    let plan = fixture.plan(Variant::Patched);
    assert!(steps(&plan).len() > 5);
    assert_eq!(steps(&plan), Vec::<String>::new());
    let kernel = std::fs::File::options()
        .write(true)
        .open(fixture.repo.root.join("kernels/src/rkv-bell.cpp"))
        .unwrap();
    kernel.set_modified(std::time::SystemTime::now()).unwrap();
    let taken = steps(&plan);
    let compiled: Vec<&String> = taken
        .iter()
        .filter(|step| step.contains("Building"))
        .collect();
    assert_eq!(compiled.len(), 1, "{taken:?}");
    assert_says(compiled[0], &["rkv-bell.cpp"]);
    assert!(
        taken
            .iter()
            .any(|step| step.contains("Linking") && step.contains("libllama.so")),
        "{taken:?}"
    );
    assert!(
        !taken.iter().any(|step| step.contains("libggml")),
        "{taken:?}"
    );
}

#[test]
fn changed_patch_compiles_only_what_it_touches() {
    if !has_tools() {
        return;
    }
    let fixture = Fixture::new();
    let plan = fixture.plan(Variant::Patched);
    build(&plan);
    fixture.edit(
        "patches/core/bell-hook.patch",
        "+    rkv_bell(); //",
        "+    rkv_bell(); rkv_bell(); //",
    );
    let taken = steps(&plan);
    assert!(
        taken
            .iter()
            .any(|step| step.contains("Building") && step.contains("src/llama.cpp")),
        "{taken:?}"
    );
    assert!(!taken.iter().any(|step| step.contains("ggml")), "{taken:?}");
    assert_says(&run(&fixture, &plan, RING), &["242 241 "]);
}

#[test]
fn compiler_error_is_quoted_with_its_log() {
    if !has_tools() {
        return;
    }
    let fixture = Fixture::new();
    fixture.edit(
        "kernels/src/rkv-bell.cpp",
        "llama_ring_count",
        "no_such_name",
    );
    let message = fixture
        .plan(Variant::Patched)
        .stage()
        .unwrap()
        .compile(&[])
        .unwrap_err()
        .to_string();
    assert_says(
        &message,
        &["while building llama", "build.log", "no_such_name"],
    );
}

#[test]
fn other_programs_are_built_on_request() {
    if !has_tools() {
        return;
    }
    let fixture = Fixture::new();
    let plan = fixture.plan(Variant::Patched);
    let built = plan.stage().unwrap().compile(&["tool"]).unwrap();
    assert!(built.bin_dir().join("tool").is_file());
}

#[test]
fn folder_that_moved_is_built_anew() {
    if !has_tools() {
        return;
    }
    let fixture = Fixture::new();
    let plan = fixture.plan(Variant::Patched);
    build(&plan);
    let moved: PathBuf = fixture.scratch().join("moved target");
    std::fs::rename(fixture.target(), &moved).unwrap();
    let plan = Plan::new(
        &fixture.repo.root,
        &moved,
        Variant::Patched,
        fixture.env(&[]),
    )
    .unwrap();
    let plan = plan.with_tool_dir(&common::own_tools());
    build(&plan);
    assert_says(&run(&fixture, &plan, RING), &["142 141"]);
    assert!(Path::new(&plan.dir()).starts_with(&moved));
}

#[test]
fn cargo_is_told_of_the_stubs_or_of_the_libraries_themselves() {
    if !has_tools() {
        return;
    }
    let fixture = Fixture::new();
    let built = build(&fixture.plan(Variant::Patched));
    let told = built.cargo_metadata().join("\n");
    let dir = fixture.target().join("rolling-kv/cpu");
    let (link, bin) = (dir.join("link"), dir.join("build/bin"));
    assert_says(
        &told,
        &[&format!("rustc-link-search=native={}", link.display())],
    );
    assert_says(
        &told,
        &[
            "rustc-link-lib=dylib=llama",
            "rustc-link-lib=dylib=ggml-base",
            "ROLLING_KV_STAMP=llama.cpp abc1234",
        ],
    );
    assert_says(&told, &[&format!("metadata=lib_dir={}", bin.display())]);
    let env = fixture.env(&[("ROLLING_KV_LINK", "origin")]);
    let plan = Plan::new(&fixture.repo.root, &fixture.target(), Variant::Patched, env).unwrap();
    let built = build(&plan.with_tool_dir(&common::own_tools()));
    assert_says(
        &built.cargo_metadata().join("\n"),
        &[&format!("rustc-link-search=native={}", bin.display())],
    );
}
