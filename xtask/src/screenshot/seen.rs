//! What a browser laid out, as `probe.js` measured it. Lengths are in CSS pixels from the page's upper left corner.

use serde::Deserialize;

/// A page that was opened.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub struct Seen {
    /// Its title.
    pub title: String,
    /// The encoding that the browser took it for.
    pub charset: String,
    /// Whether it is laid out by the standard and not as pages without a doctype are.
    pub standards: bool,
    /// Width that the page had.
    pub width_px: f64,
    /// Width that the page took.
    pub content_width_px: f64,
    /// Height that the page took.
    pub content_height_px: f64,
    /// Every piece of text.
    pub texts: Vec<Text>,
    /// Tables and pictures.
    pub blocks: Vec<Block>,
    /// What scripts and resources complained about.
    pub complaints: Vec<String>,
    /// What the page asked for and was refused: the network, and scripts.
    pub refused: Vec<String>,
    /// What the page loaded beside itself.
    pub fetched: Vec<String>,
}

/// A rectangle.
#[derive(Debug, Clone, Copy, PartialEq, Deserialize)]
pub struct Rect {
    /// Left border.
    pub x: f64,
    /// Upper border.
    pub y: f64,
    /// Width.
    pub width: f64,
    /// Height.
    pub height: f64,
}

/// An element that holds text.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub struct Text {
    /// Its name.
    pub tag: String,
    /// Its classes.
    pub class: String,
    /// The beginning of what it says.
    pub text: String,
    /// Its box; for a line in an SVG picture, that of the picture.
    pub frame: Rect,
    /// Where its glyphs lie.
    pub ink: Rect,
    /// What of that the elements around it leave to be seen.
    pub shown: Rect,
    /// Whether an element that cannot be scrolled cuts it.
    pub cut: bool,
    /// Whether it lies in an element that can be scrolled.
    pub scrolls: bool,
    /// Whether it can be scrolled itself.
    pub scrolls_itself: bool,
    /// The colour that its style gives it.
    pub colour: String,
    /// The colour behind it.
    pub backdrop: String,
    /// Whether a colour behind it was asked for in the element itself.
    pub tinted: bool,
    /// Size of its font.
    pub font_px: f64,
    /// Width of its upper border.
    pub border_px: f64,
    /// Whether it is a line in an SVG picture.
    pub in_svg: bool,
    /// Words of it that the end of a line cuts in two.
    pub broken: Vec<String>,
}

/// A table or a picture.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub struct Block {
    /// Its name.
    pub tag: String,
    /// Its box.
    pub frame: Rect,
    /// What of that the elements around it leave to be seen.
    pub shown: Rect,
    /// Whether an element that cannot be scrolled cuts it.
    pub cut: bool,
    /// Whether it lies in an element that can be scrolled.
    pub scrolls: bool,
    /// Cells of each row of a table.
    pub cells: Vec<usize>,
}

impl Text {
    /// Whether it is the page's verdict.
    pub fn is_verdict(&self) -> bool {
        matches!(self.class.as_str(), "pass" | "fail")
    }

    /// Whether it is a cell of a table.
    pub fn is_cell(&self) -> bool {
        matches!(self.tag.as_str(), "td" | "th")
    }

    /// How to name it in a message.
    pub fn name(&self) -> String {
        format!("{} {:?}", self.tag, self.text)
    }
}

impl Block {
    /// Whether it is a picture and not a table.
    pub fn is_plot(&self) -> bool {
        self.tag != "table"
    }
}

impl Rect {
    /// The right border.
    pub fn right(&self) -> f64 {
        self.x + self.width
    }

    /// The lower border.
    pub fn bottom(&self) -> f64 {
        self.y + self.height
    }

    /// Whether nothing of it is to be seen.
    pub fn is_empty(&self) -> bool {
        self.width <= 0.0 || self.height <= 0.0
    }

    /// Whether `inner` lies inside, up to `slack_px` on each side.
    pub fn holds(&self, inner: &Self, slack_px: f64) -> bool {
        inner.x >= self.x - slack_px
            && inner.y >= self.y - slack_px
            && inner.right() <= self.right() + slack_px
            && inner.bottom() <= self.bottom() + slack_px
    }

    /// Whether both share more than `slack_px` in width and in height.
    pub fn meets(&self, other: &Self, slack_px: f64) -> bool {
        self.right().min(other.right()) - self.x.max(other.x) > slack_px
            && self.bottom().min(other.bottom()) - self.y.max(other.y) > slack_px
    }
}
