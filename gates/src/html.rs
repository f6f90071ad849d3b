//! A page that a gate writes: one file, no network, readable by whom it is sent to.

use std::fmt::Write;

/// A page that is being written.
pub struct Page {
    title: String,
    body: String,
}

const STYLE: &str = "\
body{font:15px/1.5 system-ui,sans-serif;max-width:70rem;margin:2rem auto;padding:0 1rem;color:#1c1c1c;background:#fff}\
h1{font-size:1.6rem;margin-bottom:.2rem}h2{font-size:1.2rem;margin-top:2rem;border-bottom:1px solid #ddd}\
table{border-collapse:collapse;margin:.3rem 0}th,td{border:1px solid #ccc;padding:.25rem .6rem;text-align:right}\
th:first-child,td:first-child{text-align:left}th{background:#f3f3f3}td[style]{white-space:nowrap}figure{margin:1rem 0}figcaption{font-weight:600}.wide{overflow-x:auto}.wide svg{min-width:60rem}\
.pass{color:#0a6b2d;font-weight:700}.fail{color:#b00020;font-weight:700}.note{color:#555}\
svg{max-width:100%;height:auto}pre{background:#f6f6f6;padding:.6rem;white-space:pre-wrap;overflow-wrap:anywhere}";

/// A cell of a table, and the colour behind it.
pub struct Cell {
    pub text: String,
    pub colour: Option<String>,
    /// What is shown when one points at it.
    pub more: String,
}

impl Cell {
    pub fn plain(text: impl Into<String>) -> Self {
        Self {
            text: text.into(),
            colour: None,
            more: String::new(),
        }
    }
}

/// From red over yellow to green, for a share from 0 to 1.
pub fn traffic_light(share: f64) -> String {
    format!("hsl({:.0} 70% 82%)", share.clamp(0.0, 1.0) * 120.0)
}

impl Page {
    pub fn new(title: &str) -> Self {
        Self {
            title: title.to_owned(),
            body: format!("<h1>{}</h1>\n", escape(title)),
        }
    }

    pub fn heading(&mut self, text: &str) {
        let _ = writeln!(self.body, "<h2>{}</h2>", escape(text));
    }

    /// A line in a class of the style: `pass`, `fail` or `note`.
    pub fn line(&mut self, class: &str, text: &str) {
        let _ = writeln!(self.body, "<p class=\"{class}\">{}</p>", escape(text));
    }

    pub fn code(&mut self, text: &str) {
        let _ = writeln!(self.body, "<pre>{}</pre>", escape(text));
    }

    pub fn table(&mut self, caption: &str, head: &[String], rows: &[Vec<Cell>]) {
        // A caption inside of a table is no wider than the table, and would scroll with it.
        let _ = writeln!(
            self.body,
            "<figure><figcaption>{}</figcaption><div class=\"wide\"><table>",
            escape(caption)
        );
        let heads: String = head
            .iter()
            .map(|text| format!("<th>{}</th>", escape(text)))
            .collect();
        let _ = writeln!(self.body, "<tr>{heads}</tr>");
        for row in rows {
            let cells: String = row.iter().map(cell).collect();
            let _ = writeln!(self.body, "<tr>{cells}</tr>");
        }
        self.body.push_str("</table></div></figure>\n");
    }

    /// The whole file.
    pub fn finish(self) -> String {
        format!(
            "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><meta name=\"viewport\" content=\"width=device-width\">\
             <title>{}</title><style>{STYLE}</style></head>\n<body>\n{}</body></html>\n",
            escape(&self.title),
            self.body
        )
    }
}

fn cell(cell: &Cell) -> String {
    let colour = cell.colour.as_ref().map_or(String::new(), |colour| {
        format!(" style=\"background:{colour}\"")
    });
    let more = if cell.more.is_empty() {
        String::new()
    } else {
        format!(" title=\"{}\"", escape(&cell.more))
    };
    format!("<td{colour}{more}>{}</td>", escape(&cell.text))
}

fn escape(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '&' => safe.push_str("&amp;"),
            '<' => safe.push_str("&lt;"),
            '>' => safe.push_str("&gt;"),
            '"' => safe.push_str("&quot;"),
            other => safe.push(other),
        }
    }
    safe
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_model_said_is_text_and_not_markup() {
        let mut page = Page::new("A <b> & \"c\"");
        page.line("note", "<script>alert(1)</script>");
        page.table(
            "t",
            &["h".into()],
            &[vec![Cell {
                text: "x<y".into(),
                colour: Some(traffic_light(0.5)),
                more: "\"quoted\"".into(),
            }]],
        );
        let page = page.finish();
        assert!(page.starts_with("<!DOCTYPE html>"));
        assert!(!page.contains("<script>") && page.contains("x&lt;y"));
        assert!(page.contains("title=\"&quot;quoted&quot;\"") && page.contains("hsl(60 "));
        assert!(!page.contains("http"), "no network");
    }
}
