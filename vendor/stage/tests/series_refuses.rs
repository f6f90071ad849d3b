//! Ways to break `patches/series`: each is refused with the file and the next step.

mod common;

use common::{Fixture, assert_says};

#[test]
fn sound_series_is_staged() {
    let fixture = Fixture::new();
    let root = fixture.stage().unwrap();
    let patched = std::fs::read_to_string(root.join("src/llama.cpp")).unwrap();
    assert_says(
        &patched,
        &[
            "    rkv_bell(); // rkv-hook: bell\n",
            "#include \"rkv.h\"\n",
        ],
    );
    assert!(root.join("rkv/src/rkv-bell.cpp").is_file());
    assert!(!root.join("docs").exists());
}

#[test]
fn missing_entry_is_refused() {
    let fixture = Fixture::new();
    fixture.edit(
        "patches/series",
        "core/bell-hook.patch",
        "core/bell-hook.patch\ncore/gone.patch",
    );
    assert_says(
        &fixture.refusal(),
        &[
            "patches/series: line 4 names core/gone.patch",
            "add the file or delete the line",
        ],
    );
}

#[test]
fn missing_series_is_refused() {
    let fixture = Fixture::new();
    std::fs::remove_file(fixture.repo.patches().join("series")).unwrap();
    assert_says(&fixture.refusal(), &["could not read", "patches/series"]);
}

#[test]
fn orphan_patch_is_refused() {
    let fixture = Fixture::new();
    fixture.write("patches/core/forgotten.patch", "");
    assert_says(
        &fixture.refusal(),
        &[
            "patches/core/forgotten.patch: no line of patches/series",
            "add a line or delete the file",
        ],
    );
}

#[test]
fn duplicate_entry_is_refused() {
    let fixture = Fixture::new();
    fixture.edit(
        "patches/series",
        "core/bell-hook.patch",
        "core/bell-hook.patch\ncore/bell-hook.patch # again",
    );
    assert_says(
        &fixture.refusal(),
        &[
            "line 4 names core/bell-hook.patch again (first on line 3)",
            "delete one",
        ],
    );
}

#[test]
fn entry_outside_the_folder_is_refused() {
    for entry in [
        "../elsewhere.patch",
        "/tmp/elsewhere.patch",
        "core//x.patch",
    ] {
        let fixture = Fixture::new();
        fixture.edit("patches/series", "core/bell-hook.patch", entry);
        assert_says(&fixture.refusal(), &[entry, "outside this folder"]);
    }
}

#[test]
fn numbered_name_is_refused() {
    for entry in [
        "core/0001-bell.patch",
        "core/Bell.patch",
        "core/bell_hook.patch",
        "core/bell.diff",
    ] {
        let fixture = Fixture::new();
        fixture.edit("patches/series", "core/bell-hook.patch", entry);
        assert_says(&fixture.refusal(), &[entry, "rename it"]);
    }
}
