//! A page that is as it must be, for tests.

use super::colour::Rgb;
use super::judge::Expected;
use super::picture::Picture;
use super::seen::{Block, Rect, Seen, Text};

const WIDTH: usize = 1280;
const HEIGHT: usize = 200;

pub const EXPECTED: Expected = Expected {
    class: "pass",
    verdict: "PASS",
    words: &["Needles", "512"],
    tinted: 1,
    plots: 0,
    width_px: WIDTH,
};

const GREEN: &str = "rgb(10, 107, 45)";
const BLACK: &str = "rgb(28, 28, 28)";
const WHITE: &str = "rgb(255, 255, 255)";
const LIGHT_GREEN: &str = "rgb(177, 241, 177)";

const fn rect(x: f64, y: f64, width: f64, height: f64) -> Rect {
    Rect {
        x,
        y,
        width,
        height,
    }
}

fn text(tag: &str, class: &str, text: &str, frame: Rect, [colour, backdrop]: [&str; 2]) -> Text {
    let ink = rect(frame.x + 9.0, frame.y + 4.0, 60.0, 18.0);
    Text {
        tag: tag.into(),
        class: class.into(),
        text: text.into(),
        frame,
        ink,
        shown: ink,
        cut: false,
        scrolls: false,
        scrolls_itself: false,
        colour: colour.into(),
        backdrop: backdrop.into(),
        tinted: backdrop == LIGHT_GREEN,
        font_px: 15.0,
        border_px: 1.0,
        in_svg: false,
        broken: Vec::new(),
    }
}

/// A table of one row and one heading.
pub fn table() -> Block {
    Block {
        tag: "table".into(),
        frame: rect(10.0, 120.0, 200.0, 30.0),
        shown: rect(10.0, 120.0, 200.0, 30.0),
        cut: false,
        scrolls: false,
        cells: vec![2, 2],
    }
}

/// A heading, a verdict, a note and a table with a green cell.
pub fn page() -> Seen {
    Seen {
        title: "Needles".into(),
        charset: "UTF-8".into(),
        standards: true,
        width_px: WIDTH as f64,
        content_width_px: WIDTH as f64,
        content_height_px: HEIGHT as f64,
        texts: vec![
            text(
                "h1",
                "",
                "Needles",
                rect(10.0, 10.0, 900.0, 30.0),
                [BLACK, WHITE],
            ),
            text(
                "p",
                "pass",
                "PASS",
                rect(10.0, 50.0, 900.0, 30.0),
                [GREEN, WHITE],
            ),
            text(
                "p",
                "note",
                "a note",
                rect(10.0, 90.0, 900.0, 26.0),
                [BLACK, WHITE],
            ),
            text(
                "td",
                "",
                "512",
                rect(10.0, 120.0, 100.0, 30.0),
                [BLACK, WHITE],
            ),
            text(
                "td",
                "",
                "1.00",
                rect(110.0, 120.0, 100.0, 30.0),
                [BLACK, LIGHT_GREEN],
            ),
        ],
        blocks: vec![table()],
        complaints: Vec::new(),
        refused: Vec::new(),
        fetched: Vec::new(),
    }
}

/// What that page looks like.
pub fn picture() -> Picture {
    let mut picture = Picture::plain(WIDTH, HEIGHT, [255; 3]);
    for text in page().texts {
        picture.paint(&text.frame, rgb(&text.backdrop));
        // Smoothed letters have many colours.
        let front = rgb(&text.colour);
        for step in 0..12 {
            let stroke = rect(text.ink.x + f64::from(step) * 4.0, text.ink.y, 2.0, 12.0);
            picture.paint(&stroke, front.map(|channel| channel + step as u8));
        }
    }
    picture
}

fn rgb(text: &str) -> Rgb {
    super::colour::parse(text).unwrap_or_default()
}
