//! The gates on tiny models that are made in memory: every way to keep K and V, and what keeps none.

mod common;

use std::process::Output;

use common::{alone, assert_fails, option, run, stderr, stdout};

/// Three quarters of the context lie in the tail. The noise floor is measured with another number of threads, which is 2 here.
const SIZE: [&str; 8] = [
    "--ctx",
    "256",
    "--window-cells",
    "64",
    "--tile-cells",
    "32",
    "--threads",
    "1",
];

fn logit_equiv(model: &str, options: &[&str]) -> Output {
    run(&[&["gate", "logit-equiv", "-m", model], &SIZE[..], options].concat())
}

#[test]
fn every_architecture_with_a_cache_has_the_bits_of_the_resident_one() {
    let _turn = alone();
    for name in [
        "llama",
        "gemma2",
        "gemma4",
        "qwen2vl",
        "deepseek2",
        "jamba",
        "byte-pairs",
    ] {
        let output = logit_equiv(&format!("tiny:{name}"), &[]);
        let table = stdout(&output);
        let text = format!("{name}: {table}{}", stderr(&output));
        assert_eq!(output.status.code(), Some(0), "{text}");
        assert!(table.ends_with("PASS\n"), "{text}");
        assert_eq!(option(&table, "model"), format!("tiny:{name}"), "{text}");
        assert!(
            table.contains("ok: spilled and resident have the same bits"),
            "{text}"
        );
    }
}

#[test]
fn every_fault_is_noticed() {
    let _turn = alone();
    // A sliding layer has no tail, and the fault must not go where nobody reads.
    for model in ["tiny:llama", "tiny:gemma2"] {
        for fault in ["flip", "drop", "stale"] {
            let output = logit_equiv(model, &["--inject", fault]);
            let table = stdout(&output);
            let text = format!("{model}, {fault}: {table}{}", stderr(&output));
            assert_eq!(output.status.code(), Some(1), "{text}");
            assert!(
                table.contains("FAILED: spilled and resident have the same bits"),
                "{text}"
            );
        }
    }
}

/// Who attends to the tail changes no bit, and who was asked for and did nothing is no pass.
#[test]
fn every_engine_has_the_bits_of_the_resident_cache_and_one_that_did_nothing_is_said() {
    let _turn = alone();
    let device = ["--device", "sim:mem=256MiB,link=1GB/s"];
    for engine in ["auto", "stream", "host", "hybrid"] {
        let engaged = logit_equiv(
            "tiny:llama",
            &[&device[..], &["--tail-engine", engine]].concat(),
        );
        let table = stdout(&engaged);
        let text = format!("{engine}: {table}{}", stderr(&engaged));
        assert_eq!(engaged.status.code(), Some(0), "{text}");
        assert_eq!(option(&table, "tail-engine"), engine);
        let note = table
            .lines()
            .find(|line| line.contains("note: tail engine"));
        let note = note.unwrap_or_else(|| panic!("no note: {text}"));
        assert!(note.contains(engine), "{text}");
        assert_eq!(
            note.contains("attended to 0 "),
            engine == "stream",
            "{text}"
        );

        let nobody = logit_equiv("tiny:llama", &["--tail-engine", engine]);
        let asked = matches!(engine, "host" | "hybrid");
        assert_eq!(
            nobody.status.code(),
            Some(if asked { 2 } else { 0 }),
            "{engine}"
        );
        if asked {
            let text = stderr(&nobody);
            for word in [engine, "no tile", "--device", "next: "] {
                assert!(text.contains(word), "no {word:?} in: {text}");
            }
        }
    }
}

/// A fault that nobody can see would be a failure of the gate, and its pass would prove nothing.
#[test]
fn a_byte_that_lies_in_no_tail_is_not_flipped() {
    let _turn = alone();
    let size = "--ctx 257 --window-cells 256 --tile-cells 32 --threads 1 --inject flip";
    let command = ["gate", "logit-equiv", "-m", "tiny:llama"];
    let output = run(&command
        .into_iter()
        .chain(size.split(' '))
        .collect::<Vec<_>>());
    assert_eq!(output.status.code(), Some(2), "{}", stdout(&output));
    assert!(
        stderr(&output).contains("lies in no tail"),
        "{}",
        stderr(&output)
    );
}

#[test]
fn keys_move_and_attention_is_seen_on_a_tiny_model_too() {
    let _turn = alone();
    for (command, last) in [
        (&["gate", "shift", "--most", "300"][..], "PASS"),
        (&["profile", "--ctx", "1492"], "mean of all heads"),
    ] {
        let output = run(&[command, &["-m", "tiny:llama", "--threads", "1"]].concat());
        let table = stdout(&output);
        let text = format!("{command:?}: {table}{}", stderr(&output));
        assert_eq!(output.status.code(), Some(0), "{text}");
        assert!(
            table.lines().last().unwrap_or_default().starts_with(last),
            "{text}"
        );
    }
}

#[test]
fn help_says_that_there_are_tiny_models() {
    for command in [&["gate", "logit-equiv"][..], &["profile"]] {
        let output = run(&[command, &["-h"]].concat());
        assert!(stdout(&output).contains("tiny:llama"), "{command:?}");
    }
}

/// Neither a pass nor a failure, whichever gate it is; nor does the profile end with a table.
#[test]
fn what_keeps_no_cache_is_refused() {
    let _turn = alone();
    for (model, word) in [
        ("tiny:mamba", "no K and V"),
        ("tiny:bert", "no K and V"),
        ("tiny:t5", "continue a text"),
    ] {
        for command in [
            &[
                "gate",
                "logit-equiv",
                "--ctx",
                "256",
                "--window-cells",
                "64",
            ][..],
            &["gate", "niah", "--lengths", "512"],
            &["gate", "shift"],
            &["gate", "cliff", "--ctx", "1024"],
            &["gate", "engines", "--ctx", "1024"],
            &["profile", "--ctx", "1492"],
        ] {
            let output = run(&[command, &["-m", model]].concat());
            let out = stdout(&output);
            let text = format!("{model}, {command:?}: {out}{}", stderr(&output));
            assert_eq!(output.status.code(), Some(2), "{text}");
            assert!(stderr(&output).contains(word), "{text}");
            assert!(!out.contains("PASS") && !out.contains("FAIL"), "{text}");
        }
    }
}

#[test]
fn an_unknown_name_is_answered_with_all_of_them() {
    for command in [
        &["gate", "logit-equiv"][..],
        &["gate", "niah"],
        &["gate", "shift"],
        &["gate", "cliff"],
        &["gate", "engines"],
        &["profile"],
    ] {
        let output = run(&[command, &["-m", "tiny:gpt"]].concat());
        assert_fails(&output, 2, &["gpt", "llama, gemma2", "tiny:llama"]);
    }
}
