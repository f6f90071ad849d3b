//! The gate of budgets on a tiny model: placement within a budget, and what cannot be asked. Local layers need a model that answers; they
//! are tried by `cargo xtask gates`.

mod common;

use common::{alone, assert_self_contained, run, stderr, stdout};

const SIZE: [&str; 10] = [
    "gate",
    "budget",
    "-m",
    "tiny:llama",
    "--copy-cells",
    "64",
    "--decoded",
    "4",
    "--threads",
    "1",
];

#[test]
fn every_split_of_a_budget_keeps_the_bits_and_what_was_kept_is_judged_again() {
    let _turn = alone();
    let dir = tempfile::tempdir().expect("a folder");
    let file = |name: &str| dir.path().join(name).display().to_string();
    let (page, json, kept) = (file("b.html"), file("b.json"), file("kept"));
    let options = [
        "--ctx",
        "512",
        "--exact-only",
        "--html",
        &page,
        "--json",
        &json,
        "--results",
        &kept,
    ];
    let first = run(&[&SIZE[..], &options].concat());
    let table = stdout(&first);
    let text = format!("{table}{}", stderr(&first));
    assert_eq!(first.status.code(), Some(0), "{text}");
    for claim in [
        "ok: splits whose logits have other bits than those of the whole cache: 0 <= 0",
        "ok: splits that take more than the budget: 0 <= 0",
        "chosen",
    ] {
        assert!(table.contains(claim), "no {claim:?} in {text}");
    }
    assert_self_contained(&std::fs::read_to_string(&page).expect("the page"));
    let object = std::fs::read_to_string(&json).expect("the object");
    assert!(object.contains("\"accepted\": null"), "{object}");

    let again = run(&[&SIZE[..], &options].concat());
    assert!(stdout(&again).contains("results were there already"));
    let figures = |out: &str| {
        let lines = out.lines().filter(|line| line.contains("equal"));
        lines.map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(figures(&stdout(&again)), figures(&table));
    assert_eq!(again.status.code(), first.status.code());
}

#[test]
fn what_cannot_be_asked_is_said_before_anything_is_measured() {
    let _turn = alone();
    for (options, words) in [
        (
            &["--device", "sim:latency=short"][..],
            &["latency", "latency=10us"][..],
        ),
        (&["--device", "sim:link=fast"], &["link=6.4GB/s"]),
        (
            &["--ctx", "512", "--length", "256", "--local-cells", "252"],
            &["256", "--local-cells"],
        ),
        (&["--ctx", "4096"], &["4096", "512", "--ctx"]),
        (
            &["--ctx", "512", "--vram", "64", "--exact-only"],
            &["nothing would spill"],
        ),
    ] {
        let output = run(&[&SIZE[..], options].concat());
        let text = stderr(&output);
        assert_eq!(output.status.code(), Some(2), "{text}");
        for word in words {
            assert!(text.contains(word), "no {word:?} in: {text}");
        }
    }
}
