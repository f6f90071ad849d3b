use super::*;
use crate::cliff_report::CliffThresholds;
use crate::logit_equiv_report::LogitEquivThresholds;
use crate::niah_report::NiahThresholds;
use crate::shift_report::ShiftThresholds;

/// A spec with a change: `from` is replaced by `to`.
fn changed(name: &str, from: &str, to: &str) -> String {
    let text = Spec::text(name).unwrap();
    assert!(text.contains(from), "{from:?} is not in {name}");
    text.replacen(from, to, 1)
}

#[track_caller]
fn refused(text: &str, words: &[&str]) {
    let error = Spec::parse("mine.toml", text).unwrap_err().to_string();
    for word in words.iter().chain(&["mine.toml", "next: "]) {
        assert!(error.contains(word), "no {word:?} in: {error}");
    }
}

#[test]
fn every_built_in_spec_is_one_and_every_gate_has_its_own() {
    for name in Spec::names() {
        let spec = Spec::built_in(name).unwrap();
        assert!(name.starts_with(&spec.gate), "{name}");
        assert!(!spec.about.is_empty() && !spec.thresholds.is_empty());
        let again = Spec::parse(name, Spec::text(name).unwrap()).unwrap();
        assert_eq!(again, spec);
        for (threshold, one) in &spec.thresholds {
            check(name, 1, threshold, one).unwrap();
        }
    }
    for gate in GATES {
        assert_eq!(Spec::built_in(gate).unwrap().gate, *gate);
    }
}

#[test]
fn the_thresholds_of_the_built_in_specs_are_those_that_the_gates_know() {
    let floor = LogitEquivThresholds::built_in().unwrap().floor_factor;
    assert_eq!(floor.value, 2.0);
    assert_eq!(
        NiahThresholds::built_in().unwrap().resident_score.value,
        0.5
    );
    let ring = CliffThresholds::built_in().unwrap().ring_over_ideal;
    assert_eq!(ring.value, 1.05);
    // Halves of units in the last place are exact.
    let shift = ShiftThresholds::built_in().unwrap();
    assert_eq!(shift.f16_a_move.value, 2f64.powi(-11));
    assert_eq!(shift.angle_a_position.value, 2f64.powi(-24));
    assert_eq!(shift.q8_0_a_move.value, 1.0 / 127.0);
}

#[test]
fn options_are_words_of_a_command_line_in_the_order_of_the_file() {
    let spec = Spec::built_in("niah").unwrap();
    let words: Vec<(&str, &str)> = spec
        .options
        .iter()
        .map(|option| (option.name.as_str(), option.value.as_str()))
        .collect();
    assert_eq!(
        words,
        [
            ("model", "smollm2"),
            ("tasks", "niah_single_1"),
            ("lengths", "512,1024,2048"),
            ("depths", "0,50,100,border,tail"),
            ("window-percent", "25"),
            ("seed", "1"),
        ]
    );
    assert_eq!(spec.options[0].line, 7);
}

#[test]
fn what_is_no_spec_is_named_with_its_place_and_what_is_allowed() {
    refused("not = [toml", &["line 1"]);
    refused("", &["version"]);
    let niah = |from, to| changed("niah", from, to);
    refused(
        &niah("version = 1", "version = 2"),
        &["line 2", "version 2"],
    );
    refused(&niah("version = 1", "version = \"1\""), &["line 2"]);
    refused(
        &niah("gate = \"niah\"", "gate = \"nia\""),
        &["line 3", "nia", "logit-equiv, niah"],
    );
    refused(
        &niah("about", "abuot"),
        &["line 4", "abuot", "about", "thresholds"],
    );
    refused(&niah("[options]", "[option]"), &["line 6", "options"]);
    refused(
        &niah("thresholds.resident-score", "thresholds.resident-scroe"),
        &["line 14", "resident-scroe", "other-answers, resident-score"],
    );
    refused(&niah("value = 0.5", "value = \"0.5\""), &["line 15"]);
    refused(&niah("value = 0.5", "value = inf"), &["line 14", "inf"]);
    refused(&niah("value = 0.5", "value = -0.5"), &["line 14", "-0.5"]);
    refused(
        &niah("value = 0.5\nwhy", "value = 0.5\nwhi"),
        &["whi", "why"],
    );
    refused(
        &niah("seed = 1", "seed = { of = 1 }"),
        &["line 12", "seed", "table"],
    );
    let no_reason = niah("a model that", "\"\n#");
    refused(&no_reason, &["line 14", "resident-score", "why"]);
}

#[test]
fn a_reason_cannot_be_left_out() {
    let text = Spec::text("cliff").unwrap();
    let lines = text.lines().filter(|line| !line.starts_with("why"));
    refused(&lines.collect::<Vec<_>>().join("\n"), &["missing", "why"]);
}

#[test]
fn what_a_spec_does_not_name_is_the_built_in_threshold() {
    let text = "version = 1\ngate = \"niah\"\nabout = \"mine\"\n\
                [thresholds.resident-score]\nvalue = 0.75\nwhy = \"a better model\"\n";
    let spec = Spec::parse("mine.toml", text).unwrap();
    let thresholds: NiahThresholds = spec.thresholds().unwrap();
    assert_eq!(thresholds.resident_score.value, 0.75);
    assert_eq!(thresholds.resident_score.why, "a better model");
    assert_eq!(thresholds.other_answers.value, 0.0);
}

#[test]
fn thresholds_of_another_gate_are_refused() {
    let spec = Spec::built_in("niah").unwrap();
    let error = spec.thresholds::<CliffThresholds>().unwrap_err();
    assert!(error.to_string().contains("of the gate cliff"), "{error}");
}

#[test]
fn a_file_wins_over_a_name_and_what_is_neither_is_said() {
    assert_eq!(Spec::read(Path::new("niah-all")).unwrap().gate, "niah");
    let error = Spec::read(Path::new("/no/such/spec.toml")).unwrap_err();
    assert!(error.to_string().contains("/no/such/spec.toml"), "{error}");
    assert!(error.to_string().contains("niah-all"), "{error}");
}
