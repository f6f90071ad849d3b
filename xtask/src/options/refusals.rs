//! What cannot work ends with a message that says why, never with a signal.

use super::{OPTIONS, Rig, not_refused};
use crate::error::Result;
use crate::native::PROGRAMS;

pub fn check(rig: &mut Rig) -> Result<()> {
    for program in PROGRAMS {
        bad_values(rig, program)?;
        without_flash_attention(rig, program)?;
    }
    bad_environment(rig)?;
    combinations(rig)
}

/// Each option with a value that means nothing, and the last one without any.
fn bad_values(rig: &mut Rig, program: &str) -> Result<()> {
    for option in &OPTIONS {
        let ended = rig
            .program(program)
            .args([option.name, option.bad])
            .quietly()?;
        rig.claim(
            &format!("{program} {} {}: refused", option.name, option.bad),
            not_refused(&ended, &[option.name, option.bad, option.expected]),
        );
    }
    let name = OPTIONS[1].name;
    let ended = rig.program(program).arg(name).quietly()?;
    rig.claim(
        &format!("{program} {name} without a value: refused"),
        not_refused(&ended, &[name, "value"]),
    );
    Ok(())
}

/// Attention over two parts is flash attention.
fn without_flash_attention(rig: &mut Rig, program: &str) -> Result<()> {
    let run = rig
        .with_model(program)
        .args(["--kv-window-cells", "256", "-fa", "off"]);
    let run = match program {
        // Without -v it shows no line of the library.
        "llama-bench" => run.args(["-p", "32", "-n", "0", "-r", "1", "-v"]),
        "llama-server" => run.args(["-c", "512", "--host", "127.0.0.1", "--port", "0"]),
        _ => run.args(["-c", "512", "-n", "1", "-f"]).arg(&rig.prompt),
    };
    let ended = run.quietly()?;
    rig.claim(
        &format!("{program} --kv-window-cells 256 -fa off: refused"),
        not_refused(&ended, &["window", "flash attention", "turn it on"]),
    );
    Ok(())
}

/// The environment is checked as the command line is.
fn bad_environment(rig: &mut Rig) -> Result<()> {
    for option in &OPTIONS {
        let ended = rig
            .program("llama-completion")
            .env(option.env, option.bad)
            .quietly()?;
        rig.claim(
            &format!(
                "llama-completion with {}={}: refused",
                option.env, option.bad
            ),
            not_refused(&ended, &[option.env, option.bad, option.expected]),
        );
    }
    Ok(())
}

/// Values that are fine alone and cannot work with another, or with the model.
fn combinations(rig: &mut Rig) -> Result<()> {
    let cases: [(&[&str], &[&str]); 4] = [
        (&["-ctk", "f32"], &["f32", "f16"]),
        (&["-nkvo"], &["--no-kv-offload", "window"]),
        (
            &["--kv-vram-target", "8"],
            &["--kv-window-cells", "--kv-vram-target", "give one of them"],
        ),
        (&["--kv-resident-layers", "0-40"], &["41 layers", "30"]),
    ];
    for (options, words) in cases {
        let ended = rig
            .with_model("llama-completion")
            .args(["-c", "512", "-n", "1", "-no-cnv", "-p", "x"])
            .args(["--kv-window-cells", "256"])
            .args(options)
            .quietly()?;
        rig.claim(
            &format!(
                "llama-completion --kv-window-cells 256 {}: refused",
                options.join(" ")
            ),
            not_refused(&ended, words),
        );
    }
    Ok(())
}
