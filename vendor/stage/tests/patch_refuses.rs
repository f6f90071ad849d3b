//! Ways to break a patch: each is refused with the file and the next step.

mod common;

use common::{Fixture, assert_says};

const BELL: &str = "patches/core/bell-hook.patch";

/// The refusal after replacing `from` with `to` in the bell's patch.
fn refusal(from: &str, to: &str) -> String {
    let fixture = Fixture::new();
    fixture.edit(BELL, from, to);
    let message = fixture.refusal();
    assert_says(&message, &[BELL]);
    message
}

#[test]
fn removed_line_is_refused() {
    let message = refusal(
        "@@ -1,11 +1,13 @@\n #include \"llama.h\"\n",
        "@@ -1,11 +1,12 @@\n-#include \"llama.h\"\n",
    );
    assert_says(
        &message,
        &[
            "line 12 removes upstream's line \"#include \\\"llama.h\\\"\"",
            "only adds lines",
        ],
    );
}

#[test]
fn removed_line_at_the_end_of_a_hunk_is_refused() {
    let message = refusal(
        "     return ggml_add_one(llama_ring_count);\n }\n",
        "     return ggml_add_one(llama_ring_count);\n-}\n",
    );
    assert_says(&message, &["removes upstream's line \"}\""]);
}

#[test]
fn edited_line_is_refused() {
    let message = refusal(
        " int32_t llama_ring_count = 40;\n",
        "-int32_t llama_ring_count = 40;\n+int32_t llama_ring_count = 41;\n",
    );
    assert_says(
        &message,
        &[
            "line 17 edits upstream's line \"int32_t llama_ring_count = 40;\"",
            "kernels/",
        ],
    );
}

#[test]
fn missing_header_is_refused() {
    let fixture = Fixture::new();
    let text = fixture.read(BELL);
    fixture.write(BELL, &text[text.find("--- a/").unwrap()..]);
    assert_says(
        &fixture.refusal(),
        &[BELL, "no header before the diff", "patches/README.md"],
    );
}

#[test]
fn missing_header_field_is_refused() {
    assert_says(
        &refusal("Forwarded: not-needed\n", ""),
        &["the header lacks Forwarded", "patches/README.md"],
    );
    assert_says(
        &refusal("Hooks: bell\n", "Hooks:\n"),
        &["the header lacks Hooks"],
    );
}

#[test]
fn missing_marker_is_refused() {
    let message = refusal(" // rkv-hook: bell\n", "\n");
    assert_says(
        &message,
        &["no added line ends in a marker", "`// rkv-hook: <name>`"],
    );
}

#[test]
fn marker_on_a_line_of_upstream_does_not_count() {
    let message = refusal(
        "+    rkv_bell(); // rkv-hook: bell\n     llama_ring_count++;\n",
        "+    rkv_bell();\n     llama_ring_count++; // rkv-hook: bell\n",
    );
    assert_says(&message, &["no added line ends in a marker"]);
}

#[test]
fn marker_without_a_name_is_refused() {
    assert_says(
        &refusal("rkv-hook: bell", "rkv-hook: Bell!"),
        &["line 21 has a marker without a name"],
    );
}

#[test]
fn unlisted_marker_is_refused() {
    let message = refusal("rkv-hook: bell", "rkv-hook: door");
    assert_says(
        &message,
        &[
            "line 21 has the marker door, which the header does not list",
            "add it to Hooks:",
        ],
    );
}

#[test]
fn hook_without_its_marker_is_refused() {
    assert_says(
        &refusal("Hooks: bell\n", "Hooks: bell, door\n"),
        &["lists the hook door, but no added line has its marker"],
    );
}

#[test]
fn hook_found_twice_in_one_patch_is_refused() {
    let message = refusal(
        "+#include \"rkv.h\"\n",
        "+#include \"rkv.h\" // rkv-hook: bell\n",
    );
    assert_says(
        &message,
        &[
            "the hook bell is found twice",
            "src/llama.cpp:4 and at src/llama.cpp:10",
        ],
    );
}

#[test]
fn hook_of_another_patch_is_refused() {
    let fixture = Fixture::new();
    fixture.edit(BELL, "Hooks: bell\n", "Hooks: cmake_llama\n");
    fixture.edit(BELL, "rkv-hook: bell", "rkv-hook: cmake_llama");
    assert_says(
        &fixture.refusal(),
        &[
            "the hook cmake_llama is found twice",
            "CMakeLists.txt:16",
            "src/llama.cpp:10",
        ],
    );
}

#[test]
fn hook_that_upstream_has_is_refused() {
    let fixture = Fixture::new();
    fixture.edit(
        "vendor/llama.cpp/src/tool.cpp",
        "int main() {",
        "int main() { // rkv-hook: bell",
    );
    fixture.pin(common::NO_ARCHIVE, 0);
    assert_says(
        &fixture.refusal(),
        &[
            "the hook bell is found twice",
            "src/llama.cpp:10",
            "src/tool.cpp:5",
        ],
    );
}

#[test]
fn context_that_differs_is_refused() {
    let message = refusal(
        " int32_t llama_ring_count = 40;",
        " int32_t llama_ring_count = 39;",
    );
    let expected = "line 17: the patch expects \"int32_t llama_ring_count = 39;\" at src/llama.cpp:5, where \
                    \"int32_t llama_ring_count = 40;\" stands; refit it";
    assert_says(&message, &[expected, "patches open"]);
}

#[test]
fn offset_is_refused_and_named() {
    let fixture = Fixture::new();
    let upstream = "vendor/llama.cpp/src/llama.cpp";
    let text = fixture.read(upstream);
    fixture.write(upstream, &format!("// One line more.\n{text}"));
    fixture.pin(common::NO_ARCHIVE, 0);
    assert_says(
        &fixture.refusal(),
        &[BELL, "it would fit at line 2, an offset of +1"],
    );
}

#[test]
fn context_past_the_end_is_refused() {
    let message = refusal("@@ -1,11 +1,13 @@", "@@ -90,11 +90,13 @@");
    assert_says(
        &message,
        &[
            "src/llama.cpp:90, where the end of the file stands",
            "an offset of -89",
        ],
    );
}

#[test]
fn wrong_new_line_number_is_refused() {
    assert_says(
        &refusal("@@ -1,11 +1,13 @@", "@@ -1,11 +2,13 @@"),
        &["line 11: +2 should be +1"],
    );
}

#[test]
fn too_little_context_is_refused() {
    let message = refusal(
        "@@ -1,11 +1,13 @@\n #include \"llama.h\"\n",
        "@@ -2,10 +2,12 @@\n",
    );
    assert_says(
        &message,
        &["line 11: this hunk has fewer than 3 lines of context before it"],
    );
}

#[test]
fn truncated_hunk_is_refused() {
    let fixture = Fixture::new();
    let text = fixture.read(BELL);
    fixture.write(BELL, text.strip_suffix(" }\n").unwrap());
    assert_says(
        &fixture.refusal(),
        &[
            BELL,
            "line 11: this hunk is cut short (1 lines of the old file and 1 of the new",
        ],
    );
}

#[test]
fn overlong_hunk_is_refused() {
    assert_says(
        &refusal("@@ -1,11 +1,13 @@", "@@ -1,10 +1,12 @@"),
        &["line 24: this hunk is longer than its @@ line says"],
    );
}

#[test]
fn empty_context_line_is_refused() {
    assert_says(
        &refusal(" \n #include \"ggml.h\"", "\n #include \"ggml.h\""),
        &["line 13: an empty line of context begins with a blank"],
    );
}

#[test]
fn missing_target_is_refused() {
    let fixture = Fixture::new();
    for prefix in ["--- a/", "+++ b/"] {
        fixture.edit(
            BELL,
            &format!("{prefix}src/llama.cpp"),
            &format!("{prefix}src/gone.cpp"),
        );
    }
    assert_says(
        &fixture.refusal(),
        &[
            BELL,
            "line 9 names src/gone.cpp, which upstream does not have",
            "UPDATING.md",
        ],
    );
}

#[test]
fn target_outside_the_tree_is_refused() {
    for path in ["../../outside.cpp", "/etc/motd", "src/../../x.cpp"] {
        let fixture = Fixture::new();
        fixture.edit(BELL, "--- a/src/llama.cpp", &format!("--- a/{path}"));
        fixture.edit(BELL, "+++ b/src/llama.cpp", &format!("+++ b/{path}"));
        assert_says(&fixture.refusal(), &[BELL, "which is outside the tree"]);
    }
    assert_says(
        &refusal("--- a/src/llama.cpp", "--- src/llama.cpp"),
        &["names src/llama.cpp, which is outside the tree"],
    );
}

#[test]
fn new_file_is_refused() {
    assert_says(
        &refusal("--- a/src/llama.cpp", "--- /dev/null"),
        &["line 9: a patch neither makes nor deletes a file"],
    );
}

#[test]
fn renamed_file_is_refused() {
    assert_says(
        &refusal("+++ b/src/llama.cpp", "+++ b/src/tool.cpp"),
        &["are two files; a patch does not rename"],
    );
}

#[test]
fn date_and_index_lines_are_refused() {
    assert_says(
        &refusal("--- a/src/llama.cpp\n", "--- a/src/llama.cpp\t2026-01-01\n"),
        &["file lines carry no date"],
    );
    assert_says(
        &refusal(
            "--- a/src",
            "diff --git a/src/llama.cpp b/src/llama.cpp\n--- a/src",
        ),
        &["line 9 is neither"],
    );
}

#[test]
fn patch_without_a_diff_is_refused() {
    let fixture = Fixture::new();
    let text = fixture.read(BELL);
    fixture.write(BELL, &text[..text.find("--- a/").unwrap()]);
    assert_says(
        &fixture.refusal(),
        &[BELL, "there is no diff after the header"],
    );
}

#[test]
fn room_instead_of_a_doorbell_is_refused() {
    let room: String = (0..120).map(|i| format!("+// {i}\n")).collect();
    let message = refusal("@@ -1,11 +1,13 @@", "@@ -1,11 +1,133 @@");
    assert_says(&message, &["cut short"]);
    let fixture = Fixture::new();
    fixture.edit(BELL, "@@ -1,11 +1,13 @@", "@@ -1,11 +1,133 @@");
    fixture.edit(
        BELL,
        "+#include \"rkv.h\"\n",
        &format!("+#include \"rkv.h\"\n{room}"),
    );
    assert_says(
        &fixture.refusal(),
        &[BELL, "it adds 122 lines, more than 100", "kernels/"],
    );
}
