//! What is rehearsed, and what has to come of it.

use super::{CTX, NEXT, Seen, Stage};
use crate::error::{Error, Result};

/// Cells of a window that a prompt of the stage spills from.
const WINDOW: u32 = 256;

pub type Check = fn(&Stage) -> Result<String>;

/// Every check, with what it shows.
pub const ALL: &[(&str, Check)] = &[
    ("the ring brings tiles", stream),
    ("the host attends beside the device", host),
    ("both share a tail", hybrid),
    ("a tail of a smaller type is brought as it is", smaller_tail),
    ("a step allocates nothing", steady),
    ("without graphs none is launched", ungraphed),
    ("a cache that fits is launched whole", resident),
    ("every device has its ring", two_devices),
    ("a window of 0 is brought", all_in_tail),
    ("no pinned memory is an error", unpinned),
    ("too little device memory is an error", too_small),
];

pub(super) fn want(holds: bool, what: &str) -> Result<()> {
    match holds {
        true => Ok(()),
        false => Err(Error::wrong(what.to_owned(), NEXT)),
    }
}

fn spilled<'a>(engine: &'a str, window: &'a str) -> [&'a str; 4] {
    ["--window-cells", window, "--tail-engine", engine]
}

fn stream(stage: &Stage) -> Result<String> {
    let seen = stage.seen(64, &spilled("stream", &WINDOW.to_string()), &[])?;
    let (steps, bytes) = (seen.staged("steps"), seen.staged("bytes"));
    want(
        steps > 60 && bytes > 0,
        &format!("{steps} steps brought {bytes} bytes"),
    )?;
    want(
        seen.asked("bytes to the device") > bytes,
        "the runtime saw fewer bytes than were counted",
    )?;
    want(
        seen.staged("tiles_kept") > 0,
        "no tile was brought ahead of its step",
    )?;
    captured(&seen)?;
    Ok(format!(
        "{bytes} bytes in {steps} steps, {} graph launches",
        seen.staged("graph_launches")
    ))
}

/// What lies between layers is launched as graphs, most of the time.
fn captured(seen: &Seen) -> Result<()> {
    let (counted, asked) = (seen.staged("graph_launches"), seen.asked("graph launches"));
    want(
        counted == asked,
        &format!("{counted} graph launches were counted, and {asked} asked for"),
    )?;
    want(
        seen.asked("graphs captured without work") == 0,
        "an empty graph was captured",
    )?;
    let (replayed, launched) = (
        seen.asked("kernels replayed"),
        seen.asked("kernels launched"),
    );
    want(
        replayed > 2 * launched,
        &format!("{replayed} kernels came of graphs, and {launched} did not"),
    )
}

fn host(stage: &Stage) -> Result<String> {
    let seen = stage.seen(64, &spilled("host", &WINDOW.to_string()), &[])?;
    let (tiles, functions) = (seen.staged("host_tiles"), seen.asked("host functions"));
    want(tiles > 0, "the host attended to no tile")?;
    want(
        functions >= 2 * 30 * 60,
        &format!("{functions} host functions were given to the stream"),
    )?;
    captured(&seen)?;
    Ok(format!("{tiles} tiles, {functions} host functions"))
}

/// Over a slow link, the host is given a part.
fn hybrid(stage: &Stage) -> Result<String> {
    let seen = stage.seen(64, &spilled("hybrid", "128"), &[("REHEARSAL_LINK", "2000")])?;
    let (tiles, bytes) = (seen.staged("host_tiles"), seen.staged("bytes"));
    // A share that is taken back once steps were measured is none.
    let (with_host, steps) = (seen.staged("host_steps"), seen.staged("steps"));
    want(
        with_host > steps / 2 && bytes > 0,
        &format!(
            "in {with_host} of {steps} steps the host attended to a part, {bytes} bytes went over the link"
        ),
    )?;
    captured(&seen)?;
    let mut tiled = spilled("auto", "128").to_vec();
    tiled.extend(["--order", "tiled"]);
    let alone = stage.seen(16, &tiled, &[("REHEARSAL_LINK", "2000")])?;
    want(
        alone.staged("host_tiles") == 0,
        "in order tiled the host's bits came among the card's",
    )?;
    Ok(format!(
        "{tiles} tiles of the host, {bytes} bytes over the link"
    ))
}

/// A row of q8_0 has 34 bytes where one of f16 has 64.
fn smaller_tail(stage: &Stage) -> Result<String> {
    let window = WINDOW.to_string();
    let plain = stage.seen(16, &spilled("stream", &window), &[])?;
    let mut options = spilled("stream", &window).to_vec();
    options.extend(["--tail-type-k", "q8_0", "--tail-type-v", "q8_0"]);
    let small = stage.seen(16, &options, &[])?;
    let (of_f16, of_q8_0) = (plain.staged("bytes"), small.staged("bytes"));
    let share = of_q8_0 as f64 / of_f16 as f64;
    want(
        (share - 34.0 / 64.0).abs() < 0.01,
        &format!("{of_q8_0} bytes of q8_0 were brought, and {of_f16} of f16"),
    )?;
    captured(&small)?;
    Ok(format!("{share:.3} of the bytes"))
}

/// Twice as many steps take no more memory and no more events.
fn steady(stage: &Stage) -> Result<String> {
    for engine in ["stream", "host"] {
        let window = WINDOW.to_string();
        let once = stage.seen(40, &spilled(engine, &window), &[])?;
        let twice = stage.seen(80, &spilled(engine, &window), &[])?;
        for what in [
            "allocations on the device",
            "allocations of pinned memory",
            "events",
        ] {
            let (few, many) = (once.asked(what), twice.asked(what));
            want(
                few == many,
                &format!("{engine}: {few} {what} became {many}"),
            )?;
        }
    }
    Ok("neither memory nor events".to_owned())
}

fn ungraphed(stage: &Stage) -> Result<String> {
    let off = [("GGML_CUDA_DISABLE_GRAPHS", "1")];
    let seen = stage.seen(16, &spilled("stream", &WINDOW.to_string()), &off)?;
    let (counted, asked) = (seen.staged("graph_launches"), seen.asked("graph launches"));
    want(
        counted == 0 && asked == 0,
        &format!("{counted} counted, {asked} asked for"),
    )?;
    Ok("0".to_owned())
}

/// A graph a step, and nothing is brought.
fn resident(stage: &Stage) -> Result<String> {
    let seen = stage.seen(64, &["--window-cells", &CTX.to_string()], &[])?;
    let launches = seen.asked("graph launches");
    want(
        (40..=64).contains(&launches),
        &format!("{launches} graph launches in 64 steps"),
    )?;
    want(seen.staged("bytes") == 0, "a cache that fits was brought")?;
    Ok(format!("{launches} graph launches"))
}

/// What two rings bring together is what one brings, but for what is on its way for the next step as the run ends; nothing else crosses.
fn two_devices(stage: &Stage) -> Result<String> {
    let options = spilled("stream", "256");
    let one = stage.seen(32, &options, &[])?;
    let two = stage.seen(32, &options, &[("REHEARSAL_DEVICES", "2")])?;
    let (alone, together) = (one.staged("bytes"), two.staged("bytes"));
    want(
        alone.abs_diff(together) < alone / 100,
        &format!("one device was brought {alone} bytes, and two {together}"),
    )?;
    // Each device measures its link with as much as the first.
    let crossed = "bytes to the device";
    want(
        two.asked(crossed) < 2 * one.asked(crossed),
        "more than rows crossed to two devices",
    )?;
    let host = stage.seen(32, &spilled("host", "256"), &[("REHEARSAL_DEVICES", "2")])?;
    want(
        host.staged("host_tiles") > 0,
        "the host attended to no tile of two devices",
    )?;
    captured(&two)?;
    Ok(format!("{together} bytes, one device {alone}"))
}

/// A window of 0, which an automatic one is where memory is short, is read by the ring in every order.
fn all_in_tail(stage: &Stage) -> Result<String> {
    let seen = stage.seen(32, &spilled("stream", "0"), &[])?;
    let bytes = seen.staged("bytes");
    want(bytes > 0, "nothing was brought")?;
    captured(&seen)?;
    Ok(format!("{bytes} bytes"))
}

fn unpinned(stage: &Stage) -> Result<String> {
    let options = spilled("stream", "256");
    stage.refused(
        &options,
        &[("GGML_CUDA_NO_PINNED", "1")],
        "GGML_CUDA_NO_PINNED forbids",
    )
}

/// Weights fit, and slots do not.
fn too_small(stage: &Stage) -> Result<String> {
    let options = ["--window-cells", "256", "--ring-depth", "4096"];
    stage.refused(
        &options,
        &[("REHEARSAL_MIB", "300")],
        "for the slots of the staging ring",
    )
}
