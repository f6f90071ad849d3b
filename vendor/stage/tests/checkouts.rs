//! `patches open` and `refresh`, with a real git.

mod common;

use common::{Fixture, assert_says, names};
use rolling_kv_stage::checkout::{self, Opened, Refreshed};
use rolling_kv_stage::{Result, hash};
use std::path::PathBuf;
use std::process::Command;

const BELL: &str = "patches/core/bell-hook.patch";

struct Desk {
    fixture: Fixture,
    dir: PathBuf,
}

impl Desk {
    fn new() -> Self {
        let fixture = Fixture::new();
        let dir = checkout::default_dir(&fixture.target());
        Self { fixture, dir }
    }

    fn open(&self) -> Result<Opened> {
        checkout::open(
            &self.fixture.repo,
            &self.fixture.upstream(),
            &self.fixture.source(),
            &self.dir,
        )
    }

    /// An open desk on which every patch fits.
    fn opened() -> Self {
        let desk = Self::new();
        let opened = desk.open().unwrap();
        assert_eq!(
            opened.applied,
            ["build/cmake-kernels.patch", "core/bell-hook.patch"]
        );
        assert!(opened.moved.is_empty() && opened.failed.is_empty());
        desk
    }

    fn refresh(&self) -> Result<Refreshed> {
        checkout::refresh(&self.fixture.repo, &self.fixture.upstream(), &self.dir)
    }

    fn git(&self, args: &[&str]) -> String {
        let output = Command::new("git")
            .current_dir(&self.dir)
            .args(args)
            .env("GIT_SEQUENCE_EDITOR", "true")
            .output()
            .unwrap();
        assert!(
            output.status.success(),
            "git {args:?}: {}",
            String::from_utf8_lossy(&output.stderr)
        );
        String::from_utf8(output.stdout).unwrap()
    }

    fn edit(&self, file: &str, from: &str, to: &str) {
        let path = self.dir.join(file);
        let text = std::fs::read_to_string(&path).unwrap();
        assert!(text.contains(from));
        std::fs::write(path, text.replacen(from, to, 1)).unwrap();
    }

    fn patches_hash(&self) -> String {
        hash::tree_sha256(&self.fixture.repo.patches()).unwrap()
    }

    fn refusal(&self) -> String {
        let before = self.patches_hash();
        let message = self.refresh().unwrap_err().to_string();
        assert_eq!(
            self.patches_hash(),
            before,
            "a refused refresh wrote something"
        );
        message
    }
}

#[test]
fn open_makes_one_commit_per_patch() {
    let desk = Desk::opened();
    let log = desk.git(&["log", "--reverse", "--format=%s by %an"]);
    let commits = [
        "llama.cpp abc1234 (v0.1.0)",
        "build/cmake-kernels.patch",
        "core/bell-hook.patch",
    ];
    assert_eq!(
        log,
        commits
            .map(|subject| format!("{subject} by rolling-kv\n"))
            .concat()
    );
    assert_eq!(desk.git(&["status", "--porcelain"]), "");
    assert_says(
        &std::fs::read_to_string(desk.dir.join("src/llama.cpp")).unwrap(),
        &["rkv_bell();"],
    );
    assert!(
        desk.dir.join("rkv/include/rkv.h").is_file(),
        "kernels/ is linked in"
    );
    assert_eq!(desk.git(&["ls-files", "rkv"]), "");
    assert_eq!(names(desk.dir.parent().unwrap()), ["open"]);
}

#[test]
fn open_twice_is_refused() {
    let desk = Desk::opened();
    assert_says(
        &desk.open().unwrap_err().to_string(),
        &["is open already", "patches refresh", "delete the folder"],
    );
}

#[test]
fn refresh_after_open_changes_no_byte() {
    let desk = Desk::opened();
    let before = desk.patches_hash();
    let refreshed = desk.refresh().unwrap();
    assert_eq!(
        refreshed.kept,
        ["build/cmake-kernels.patch", "core/bell-hook.patch"]
    );
    assert!(
        refreshed.written.is_empty() && refreshed.removed.is_empty() && !refreshed.series_written
    );
    assert_eq!(desk.patches_hash(), before);
}

#[test]
fn refresh_is_stable_from_its_own_output() {
    let desk = Desk::opened();
    desk.edit(
        "src/llama.cpp",
        "    rkv_bell(); //",
        "    rkv_bell(); /* twice */ rkv_bell(); //",
    );
    desk.git(&["commit", "--quiet", "--all", "--amend", "--no-edit"]);
    assert_eq!(desk.refresh().unwrap().written, ["core/bell-hook.patch"]);
    let text = desk.fixture.read(BELL);
    assert_says(
        &text,
        &[
            "+    rkv_bell(); /* twice */ rkv_bell(); // rkv-hook: bell\n",
            "\n@@ -1,11 +1,13 @@\n",
            "Description: ring our bell as well\n",
        ],
    );
    assert!(
        !text.contains("index ") && !text.contains("diff --git") && !text.contains("2026-01-31"),
        "{text}"
    );
    let before = desk.patches_hash();
    assert!(desk.refresh().unwrap().written.is_empty());
    std::fs::remove_dir_all(&desk.dir).unwrap();
    desk.open().unwrap();
    desk.refresh().unwrap();
    assert_eq!(desk.patches_hash(), before);
    desk.fixture.stage().unwrap();
}

#[test]
fn new_commit_becomes_a_patch_at_the_end() {
    let desk = Desk::opened();
    desk.edit(
        "src/tool.cpp",
        "    llama_bell bell = {};\n",
        "    llama_bell bell = {};\n    rkv_bell(); // rkv-hook: tool_bell\n",
    );
    let message = "Ring in the tool\n\nThe tool has no other\nplace for it.";
    desk.git(&["commit", "--quiet", "--all", "-m", message]);
    let refreshed = desk.refresh().unwrap();
    assert_eq!(
        (refreshed.written, refreshed.series_written),
        (vec!["ring-in-the-tool.patch".to_owned()], true)
    );
    let header = "Description: Ring in the tool\n The tool has no other\n place for it.\nAuthor: rolling-kv\nOrigin: vendor\n\
                  Forwarded: not-needed\nBase: llama.cpp abc1234 (v0.1.0)\nHooks: tool_bell\nLast-Update: ";
    assert_says(
        &desk.fixture.read("patches/ring-in-the-tool.patch"),
        &[header],
    );
    assert!(
        desk.fixture
            .read("patches/series")
            .ends_with("core/bell-hook.patch\nring-in-the-tool.patch\n")
    );
    desk.fixture.stage().unwrap();
}

#[test]
fn added_hook_is_listed_and_dropped_patch_is_deleted() {
    let desk = Desk::opened();
    desk.git(&["rebase", "--quiet", "--onto", "pristine", "HEAD~1"]);
    desk.edit(
        "src/llama.cpp",
        "int32_t llama_knock(void) {\n",
        "int32_t llama_knock(void) {\n    rkv_bell(); // rkv-hook: knock\n",
    );
    desk.git(&["commit", "--quiet", "--all", "--amend", "--no-edit"]);
    let refreshed = desk.refresh().unwrap();
    assert_eq!(refreshed.removed, ["build/cmake-kernels.patch"]);
    assert_says(&desk.fixture.read(BELL), &["Hooks: bell, knock\n"]);
    assert_eq!(
        desk.fixture.read("patches/series"),
        "# In the order they are applied.\ncore/bell-hook.patch\n"
    );
}

#[test]
fn order_of_the_commits_is_the_order_of_the_series() {
    let desk = Desk::opened();
    let first = desk.git(&["rev-parse", "HEAD~1"]);
    let second = desk.git(&["rev-parse", "HEAD"]);
    desk.git(&["reset", "--quiet", "--hard", "pristine"]);
    desk.git(&["cherry-pick", second.trim(), first.trim()]);
    let refreshed = desk.refresh().unwrap();
    assert!(refreshed.series_written && refreshed.written.is_empty());
    assert_says(
        &desk.fixture.read("patches/series"),
        &["core/bell-hook.patch\nbuild/cmake-kernels.patch\n"],
    );
}

#[test]
fn uncommitted_change_is_refused() {
    let desk = Desk::opened();
    desk.edit("src/tool.cpp", "main", "main2");
    assert_says(
        &desk.refusal(),
        &[
            "changes that are not committed (src/tool.cpp)",
            "commit them",
        ],
    );
}

#[test]
fn commit_that_edits_a_line_is_refused() {
    let desk = Desk::opened();
    desk.edit(
        "src/tool.cpp",
        "llama_bell bell = {};",
        "llama_bell bell = {}; // rkv-hook: tool",
    );
    desk.git(&["commit", "--quiet", "--all", "-m", "Tool hook\n\nWhy."]);
    assert_says(
        &desk.refusal(),
        &["tool-hook.patch", "edits upstream's line"],
    );
}

#[test]
fn commit_that_adds_a_file_is_refused() {
    let desk = Desk::opened();
    std::fs::write(desk.dir.join("src/new.cpp"), "int x; // rkv-hook: x\n").unwrap();
    desk.git(&["add", "--all"]);
    desk.git(&["commit", "--quiet", "-m", "New file\n\nWhy."]);
    assert_says(
        &desk.refusal(),
        &["new-file.patch", "a new file belongs into kernels/"],
    );
}

#[test]
fn commit_without_a_reason_is_refused() {
    let desk = Desk::opened();
    desk.edit(
        "src/tool.cpp",
        "int main() {\n",
        "int main() {\n    // rkv-hook: tool\n",
    );
    desk.git(&["commit", "--quiet", "--all", "-m", "Tool hook"]);
    assert_says(
        &desk.refusal(),
        &["tool-hook.patch", "why kernels/ cannot do it alone"],
    );
}

#[test]
fn two_commits_of_one_name_are_refused() {
    let desk = Desk::opened();
    desk.edit(
        "src/tool.cpp",
        "int main() {\n",
        "int main() {\n    // rkv-hook: tool\n",
    );
    desk.git(&["commit", "--quiet", "--all", "-m", "core/bell-hook.patch"]);
    assert_says(&desk.refusal(), &["bell-hook.patch"]);
}

#[test]
fn empty_commit_is_refused() {
    let desk = Desk::opened();
    desk.git(&[
        "commit",
        "--quiet",
        "--allow-empty",
        "-m",
        "Nothing\n\nWhy.",
    ]);
    assert_says(
        &desk.refusal(),
        &["\"Nothing\" changes nothing", "git rebase -i pristine"],
    );
}

#[test]
fn refresh_without_open_is_refused() {
    let desk = Desk::new();
    assert_says(
        &desk.refresh().unwrap_err().to_string(),
        &["is not open", "patches open"],
    );
}

#[test]
fn work_tree_of_another_upstream_is_refused() {
    let desk = Desk::opened();
    desk.fixture
        .edit("vendor/UPSTREAM.toml", "abc1234", "def5678");
    assert_says(
        &desk.refusal(),
        &[
            "was opened from llama.cpp abc1234 (v0.1.0)",
            "open it again",
        ],
    );
}

#[test]
fn bump_moves_what_can_be_moved_and_names_what_cannot() {
    let desk = Desk::new();
    let fixture = &desk.fixture;
    fixture.edit(
        "vendor/llama.cpp/src/llama.cpp",
        "#include \"llama.h\"\n",
        "// Newer.\n#include \"llama.h\"\n",
    );
    fixture.edit(
        "vendor/llama.cpp/CMakeLists.txt",
        "target_link_libraries(llama PUBLIC ggml)\n",
        "target_link_libraries(llama PRIVATE ggml)\n",
    );
    fixture.pin(common::NO_ARCHIVE, 0);
    fixture.edit("vendor/UPSTREAM.toml", "abc1234", "def5678");
    let opened = desk.open().unwrap();
    assert_eq!(opened.moved, ["core/bell-hook.patch"]);
    assert_eq!(opened.failed[0].0, "build/cmake-kernels.patch");
    assert_says(
        &opened.failed[0].1.to_string(),
        &["the patch expects \"target_link_libraries(llama PUBLIC ggml)\""],
    );
    assert_says(
        &desk.refusal(),
        &["\"build/cmake-kernels.patch\" changes nothing"],
    );
    let hook = "include(${PROJECT_SOURCE_DIR}/rkv/llama.cmake) # rkv-hook: cmake_llama\n";
    desk.edit(
        "CMakeLists.txt",
        "target_link_libraries(llama PRIVATE ggml)\n",
        &format!("target_link_libraries(llama PRIVATE ggml)\n{hook}"),
    );
    desk.git(&["commit", "--quiet", "--all", "--fixup", "HEAD~1"]);
    desk.git(&[
        "rebase",
        "--quiet",
        "-i",
        "--autosquash",
        "--keep-empty",
        "pristine",
    ]);
    assert_eq!(
        desk.refresh().unwrap().written,
        ["build/cmake-kernels.patch", "core/bell-hook.patch"]
    );
    assert_says(
        &desk.fixture.read(BELL),
        &["Base: llama.cpp def5678 (v0.1.0)\n", "@@ -2,11 +2,13 @@\n"],
    );
    desk.fixture.stage().unwrap();
}

#[test]
fn refresh_mends_a_patch_of_another_form() {
    let desk = Desk::opened();
    desk.fixture
        .edit(BELL, "--- a/src", "index 123..456 100644\n--- a/src");
    assert_eq!(desk.refresh().unwrap().written, ["core/bell-hook.patch"]);
    desk.fixture.stage().unwrap();
}
