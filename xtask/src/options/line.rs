//! The line that says what is active.

/// What the line says.
#[derive(Debug, Clone, PartialEq)]
pub struct Active {
    /// Cells of the smallest and of the largest window.
    pub window: (u32, u32),
    pub cells: u32,
    pub layers_with_tail: u32,
    pub layers: u32,
    pub order: String,
    pub tile: u32,
    pub device_mib: f64,
    pub host_mib: f64,
}

/// Reads `rolling-kv: window 256 to 1024 of 1024 cells, 20 of 30 layers with a tail, order tiled, tiles of 128 cells; KV cache
/// 7.50 MiB on the device, 15.00 MiB in host memory`. `None` if no line, or more than one, says it.
pub fn read(text: &str) -> Option<Active> {
    let mut found = text.lines().filter_map(|line| {
        let (_, rest) = line.split_once("rolling-kv: window ")?;
        parse(rest)
    });
    let first = found.next()?;
    // A program can make its context twice; both must be alike.
    found.all(|other| other == first).then_some(first)
}

fn parse(rest: &str) -> Option<Active> {
    let (window, rest) = rest.split_once(" of ")?;
    let (low, high) = window.split_once(" to ").unwrap_or((window, window));
    let (cells, rest) = rest.split_once(" cells, ")?;
    let (with_tail, rest) = rest.split_once(" of ")?;
    let (layers, rest) = rest.split_once(" layers with a tail, order ")?;
    let (order, rest) = rest.split_once(", tiles of ")?;
    let (tile, rest) = rest.split_once(" cells; KV cache ")?;
    let (device, rest) = rest.split_once(" MiB on the device, ")?;
    let host = rest.trim_end().strip_suffix(" MiB in host memory")?;
    Some(Active {
        window: (low.parse().ok()?, high.parse().ok()?),
        cells: cells.parse().ok()?,
        layers_with_tail: with_tail.parse().ok()?,
        layers: layers.parse().ok()?,
        order: order.to_owned(),
        tile: tile.parse().ok()?,
        device_mib: device.parse().ok()?,
        host_mib: host.parse().ok()?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINE: &str = "0.01.026.539 I rolling-kv: window 256 to 1024 of 1024 cells, 20 of 30 layers with a tail, order tiled, \
        tiles of 128 cells; KV cache 11.25 MiB on the device, 11.26 MiB in host memory";

    #[test]
    fn the_line_is_read() {
        let active = read(&format!("before\n{LINE}\nafter\n")).unwrap();
        assert_eq!(active.window, (256, 1024));
        assert_eq!((active.layers_with_tail, active.layers), (20, 30));
        assert_eq!((active.order.as_str(), active.tile), ("tiled", 128));
        assert_eq!((active.device_mib, active.host_mib), (11.25, 11.26));
        let one = read(&LINE.replace("256 to 1024 of", "512 of")).unwrap();
        assert_eq!((one.window, one.cells), ((512, 512), 1024));
    }

    #[test]
    fn no_line_or_two_that_differ_say_nothing() {
        assert_eq!(
            read("rolling-kv: the window of 300 cells is rounded down"),
            None
        );
        assert_eq!(read(&LINE.replace("cells;", "cells")), None);
        assert_eq!(
            read(&format!("{LINE}\n{}", LINE.replace("20 of", "21 of"))),
            None
        );
        assert!(read(&format!("{LINE}\n{LINE}")).is_some());
    }
}
