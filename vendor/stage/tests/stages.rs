//! Staging: complete or absent, and nothing compiled again without need.

mod common;

use common::{Fixture, assert_says, names};
use rolling_kv_stage::{Error, Variant};
use std::path::Path;
use std::time::{Duration, SystemTime};

fn modified(path: &Path) -> SystemTime {
    path.metadata().unwrap().modified().unwrap()
}

fn set_modified(path: &Path, time: SystemTime) {
    std::fs::File::options()
        .write(true)
        .open(path)
        .unwrap()
        .set_modified(time)
        .unwrap();
}

#[test]
fn wrong_tree_hash_is_refused() {
    let fixture = Fixture::new();
    fixture.edit("vendor/llama.cpp/src/tool.cpp", "int main()", "int  main()");
    let message = fixture.refusal();
    assert_says(
        &message,
        &[
            "vendor/llama.cpp has sha256",
            "UPSTREAM.toml pins",
            "cargo xtask vendor",
        ],
    );
    assert!(!fixture.scratch().join("stage/src").exists());
}

#[test]
fn added_file_changes_the_hash() {
    let fixture = Fixture::new();
    fixture.write("vendor/llama.cpp/src/more.cpp", "");
    assert_says(&fixture.refusal(), &["has sha256"]);
}

#[test]
fn excluded_file_does_not_change_the_hash() {
    let fixture = Fixture::new();
    fixture.write("vendor/llama.cpp/docs/more.md", "");
    fixture.stage().unwrap();
}

#[test]
fn collision_is_refused() {
    let fixture = Fixture::new();
    fixture.write("vendor/llama.cpp/rkv/include/rkv.h", "");
    fixture.pin(common::NO_ARCHIVE, 0);
    assert_says(
        &fixture.refusal(),
        &[
            "rkv/include/rkv.h is in the way of kernels/",
            "upstream has this path",
            "another name",
        ],
    );
}

#[test]
fn generated_header_in_kernels_is_refused() {
    let fixture = Fixture::new();
    fixture.write("kernels/include/rkv-stamp.h", "");
    assert_says(
        &fixture.refusal(),
        &[
            "kernels/include/rkv-stamp.h is in the way",
            "delete it from kernels/",
        ],
    );
}

#[test]
fn interrupted_staging_leaves_nothing_half_made() {
    let fixture = Fixture::new();
    let root = fixture.stage().unwrap();
    let before = std::fs::read(root.join("src/llama.cpp")).unwrap();
    fixture.edit(
        "patches/core/bell-hook.patch",
        " int32_t llama_ring_count = 40;",
        " int32_t llama_ring_count = 39;",
    );
    assert_says(&fixture.refusal(), &["bell-hook.patch"]);
    assert_eq!(std::fs::read(root.join("src/llama.cpp")).unwrap(), before);
    assert_eq!(names(&fixture.scratch().join("stage")), ["src"]);
}

#[test]
fn what_a_killed_run_left_is_cleaned() {
    let fixture = Fixture::new();
    let dir = fixture.scratch().join("stage");
    std::fs::create_dir_all(dir.join("src.tmp-1/half")).unwrap();
    fixture.stage().unwrap();
    assert_eq!(names(&dir), ["src"]);
}

#[test]
fn run_killed_between_the_renames_gets_its_tree_back() {
    let fixture = Fixture::new();
    let root = fixture.stage().unwrap();
    let dir = fixture.scratch().join("stage");
    std::fs::rename(&root, dir.join("src.old")).unwrap();
    std::fs::create_dir_all(dir.join("src.tmp-1")).unwrap();
    rolling_kv_stage::tree::recover(&dir).unwrap();
    assert_eq!(names(&dir), ["src"]);
    assert!(root.join("rkv/include/rkv.h").is_file());
}

#[test]
fn equal_files_keep_their_time() {
    let fixture = Fixture::new();
    let root = fixture.stage().unwrap();
    let past = SystemTime::now() - Duration::from_secs(3600);
    for file in [
        "src/tool.cpp",
        "src/llama.cpp",
        "CMakeLists.txt",
        "rkv/include/rkv-stamp.h",
    ] {
        set_modified(&root.join(file), past);
    }
    fixture.edit(
        "patches/core/bell-hook.patch",
        "+    rkv_bell(); //",
        "+    rkv_bell();  //",
    );
    fixture.stage().unwrap();
    for file in ["src/tool.cpp", "CMakeLists.txt", "rkv/include/rkv-stamp.h"] {
        assert_eq!(modified(&root.join(file)), past, "{file}");
    }
    assert!(modified(&root.join("src/llama.cpp")) > past + Duration::from_secs(3000));
}

#[test]
fn touched_kernel_alone_gets_a_new_time() {
    let fixture = Fixture::new();
    let plan = fixture.plan(Variant::Patched);
    let root = plan.stage().unwrap().release();
    let past = SystemTime::now() - Duration::from_secs(3600);
    for file in [
        "rkv/src/rkv-abi.cpp",
        "rkv/src/rkv-bell.cpp",
        "rkv/include/rkv-stamp.h",
        "src/llama.cpp",
    ] {
        set_modified(&root.join(file), past);
    }
    for file in ["kernels/src/rkv-abi.cpp", "kernels/src/rkv-bell.cpp"] {
        set_modified(
            &fixture.repo.root.join(file),
            past - Duration::from_secs(60),
        );
    }
    let touched = past + Duration::from_secs(1800);
    set_modified(&fixture.repo.root.join("kernels/src/rkv-abi.cpp"), touched);
    plan.stage().unwrap();
    assert_eq!(modified(&root.join("rkv/src/rkv-abi.cpp")), touched);
    for file in [
        "rkv/src/rkv-bell.cpp",
        "rkv/include/rkv-stamp.h",
        "src/llama.cpp",
    ] {
        assert_eq!(modified(&root.join(file)), past, "{file}");
    }
}

#[test]
fn kernel_replaced_by_an_older_file_gets_a_new_time() {
    let fixture = Fixture::new();
    let plan = fixture.plan(Variant::Patched);
    let root = plan.stage().unwrap().release();
    let start = SystemTime::now();
    fixture.edit("kernels/src/rkv-bell.cpp", "100", "200");
    set_modified(
        &fixture.repo.root.join("kernels/src/rkv-bell.cpp"),
        start - Duration::from_secs(7200),
    );
    plan.stage().unwrap();
    let staged = root.join("rkv/src/rkv-bell.cpp");
    assert_says(&std::fs::read_to_string(&staged).unwrap(), &["+= 200"]);
    assert!(modified(&staged) + Duration::from_secs(5) > start);
}

#[test]
fn vanished_kernel_vanishes_from_the_tree() {
    let fixture = Fixture::new();
    fixture.write("kernels/src/extra.cpp", "");
    let plan = fixture.plan(Variant::Patched);
    let root = plan.stage().unwrap().release();
    assert!(root.join("rkv/src/extra.cpp").is_file());
    std::fs::remove_file(fixture.repo.root.join("kernels/src/extra.cpp")).unwrap();
    plan.stage().unwrap();
    assert!(!root.join("rkv/src/extra.cpp").exists());
    assert!(root.join("rkv/include/rkv-stamp.h").is_file());
}

#[test]
fn what_was_built_names_the_kernels_and_not_their_tests() {
    let fixture = Fixture::new();
    let plan = fixture.plan(Variant::Patched);
    let text = || plan.stage().unwrap().text().to_owned();
    let first = text();
    assert_says(&first, &["llama.cpp abc1234, patches ", ", kernels "]);
    fixture.write("kernels/tests/test-bell.cpp", "int main() {}");
    assert_eq!(text(), first);
    fixture.edit("kernels/src/rkv-bell.cpp", "100", "200");
    assert_ne!(text(), first);
    let root = plan.stage().unwrap().release();
    let header = std::fs::read_to_string(root.join("rkv/include/rkv-stamp.h")).unwrap();
    assert_says(&header, &[&text()]);
    let stock = fixture.plan(Variant::Stock).stage().unwrap();
    assert!(!stock.text().contains("kernels"), "{}", stock.text());
}

#[test]
fn changed_patch_is_staged_again() {
    let fixture = Fixture::new();
    let plan = fixture.plan(Variant::Patched);
    let before = plan.stage().unwrap().stamp().clone();
    fixture.edit(
        "patches/core/bell-hook.patch",
        "+    rkv_bell(); //",
        "+    rkv_bell();  //",
    );
    let staged = plan.stage().unwrap();
    assert_says(
        &std::fs::read_to_string(staged.root().join("src/llama.cpp")).unwrap(),
        &["rkv_bell();  //"],
    );
    assert_ne!(staged.stamp(), &before);
    assert_says(&before.text, &["llama.cpp abc1234, patches "]);
}

#[test]
fn stock_tree_has_nothing_of_ours() {
    let fixture = Fixture::new();
    let staged = fixture.plan(Variant::Stock).stage().unwrap();
    assert!(!staged.root().join("rkv").exists());
    assert!(
        !std::fs::read_to_string(staged.root().join("src/llama.cpp"))
            .unwrap()
            .contains("rkv")
    );
    assert!(staged.root().ends_with("rolling-kv/cpu-stock/src"));
}

#[test]
fn another_checkout_is_staged_without_its_hash() {
    let fixture = Fixture::new();
    let other = fixture.scratch().join("other llama");
    common::copy(&fixture.repo.vendored(), &other);
    std::fs::write(other.join("src/tool.cpp"), "int main() { return 5; }\n").unwrap();
    std::fs::create_dir_all(other.join("build")).unwrap();
    std::fs::write(other.join("build/CMakeCache.txt"), "").unwrap();
    let env = fixture.env(&[("ROLLING_KV_LLAMA_DIR", other.to_str().unwrap())]);
    let plan =
        rolling_kv_stage::Plan::new(&fixture.repo.root, &fixture.target(), Variant::Patched, env)
            .unwrap();
    let staged = plan.stage().unwrap();
    assert_says(
        &std::fs::read_to_string(staged.root().join("src/tool.cpp")).unwrap(),
        &["return 5"],
    );
    assert!(!staged.root().join("build").exists());
    assert_says(&staged.stamp().text, &["llama.cpp from ", "other llama"]);
    let name = plan.dir().file_name().unwrap().to_str().unwrap().to_owned();
    assert!(name.starts_with("cpu-") && name.len() == 12, "{name}");
}

#[test]
fn patch_that_does_not_fit_another_checkout_is_refused() {
    let fixture = Fixture::new();
    let other = fixture.scratch().join("other");
    common::copy(&fixture.repo.vendored(), &other);
    std::fs::write(other.join("src/llama.cpp"), "").unwrap();
    let env = fixture.env(&[("ROLLING_KV_LLAMA_DIR", other.to_str().unwrap())]);
    let plan =
        rolling_kv_stage::Plan::new(&fixture.repo.root, &fixture.target(), Variant::Patched, env)
            .unwrap();
    assert!(matches!(plan.stage().unwrap_err(), Error::Patch { .. }));
}

#[test]
fn second_process_waits_for_the_first() {
    let fixture = Fixture::new();
    let staged = fixture.plan(Variant::Patched).stage().unwrap();
    let (sender, receiver) = std::sync::mpsc::channel();
    let reporter = rolling_kv_stage::Reporter::new(move |event| drop(sender.send(event.clone())));
    let plan = fixture.plan(Variant::Patched).with_reporter(reporter);
    let other = std::thread::spawn(move || plan.stage().map(drop));
    assert_eq!(
        receiver.recv_timeout(Duration::from_secs(60)).unwrap(),
        rolling_kv_stage::Event::Waiting
    );
    assert!(!other.is_finished());
    drop(staged);
    other.join().unwrap().unwrap();
}
