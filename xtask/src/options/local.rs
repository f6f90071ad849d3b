//! llama-completion with local layers: named one by one, and by the file that the budget gate writes.

use std::fs;
use std::path::{Path, PathBuf};

use super::completion::complete;
use super::{Rig, not_refused, unequal};
use crate::error::{Error, Result};

/// Layers, and what the gate's file says of them.
const LAYERS: &str = "10-13,24";
const ACCEPTED: &str =
    r#"{"accepted":{"layers":[10,11,12,13,24],"cells":96,"first":4,"n_layer":30}}"#;

pub fn check(rig: &mut Rig) -> Result<()> {
    let folder = rig.text.parent().unwrap_or(Path::new(".")).to_owned();
    let write = |name: &str, text: &str| -> Result<PathBuf> {
        let path = folder.join(name);
        fs::write(&path, text).map_err(Error::file("write", &path))?;
        Ok(path)
    };
    let accepted = write("accepted.json", ACCEPTED)?.display().to_string();
    let common = [
        "--kv-order",
        "tiled",
        "--kv-window-cells",
        "256",
        "-b",
        "64",
    ];
    let run = |rig: &Rig, options: &[&str]| complete(rig, &[&common, options].concat(), &[]);

    let named = run(
        rig,
        &["--kv-local-layers", LAYERS, "--kv-local-cells", "96"],
    )?;
    rig.claim(
        "llama-completion --kv-local-layers: a line says that results change",
        (!named
            .log
            .contains("5 layers are local: they see the first 4 and the newest 96 tokens"))
        .then(|| "no such line".into()),
    );
    let file = run(
        rig,
        &["--kv-local-layers", "auto", "--kv-local-file", &accepted],
    )?;
    rig.claim(
        "llama-completion --kv-local-layers auto: the text with the file's layers is that with the same ones named",
        unequal(&file.text, &named.text),
    );
    let one_token = run(rig, &["--kv-local-layers", "0-28", "--kv-local-cells", "1"])?;
    rig.claim(
        "llama-completion with local layers of one token: another text, so they are local",
        (one_token.text == named.text).then(|| one_token.text.clone()),
    );

    let none = write("none.json", r#"{"accepted":null}"#)?
        .display()
        .to_string();
    let foreign = write("foreign.json", &ACCEPTED.replace("30}", "48}"))?;
    let foreign = foreign.display().to_string();
    let wrong = write("wrong.json", "[]")?.display().to_string();
    let cases: [(&[&str], &[&str]); 6] = [
        (&["--kv-local-layers", "auto"], &["--kv-local-file"]),
        (&["--kv-local-layers", "0-29"], &["every layer"]),
        (&["--kv-local-layers", "30"], &["layer 30"]),
        (&["--kv-local-file", &none], &["accepted none"]),
        (&["--kv-local-file", &foreign], &["48 layers", "30"]),
        (&["--kv-local-file", &wrong], &["rolling-kv gate budget"]),
    ];
    for (options, words) in cases {
        let ended = rig
            .with_model("llama-completion")
            .args(["-c", "512", "-n", "1", "-no-cnv", "-p", "x"])
            .args(options)
            .quietly()?;
        rig.claim(
            &format!("llama-completion {}: refused", words.join(", ")),
            not_refused(&ended, words),
        );
    }
    Ok(())
}
