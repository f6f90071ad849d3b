//! A page that a gate writes: one file, no network, readable by whom it is sent to.

use std::fmt::Write;

use crate::settings::Settings;
use crate::threshold::{Check, Judged, exact};
use crate::verdict::Verdict;

/// A page that is being written.
pub struct Page {
    title: String,
    body: String,
}

const STYLE: &str = "\
body{font:15px/1.5 system-ui,sans-serif;max-width:70rem;margin:2rem auto;padding:0 1rem;color:#1c1c1c;background:#fff}\
h1{font-size:1.6rem;margin-bottom:.2rem}h2{font-size:1.2rem;margin-top:2rem;border-bottom:1px solid #ddd}\
table{border-collapse:collapse;margin:.3rem 0}th,td{border:1px solid #ccc;padding:.25rem .6rem;text-align:right}\
th:first-child,td:first-child,.words td,.words th{text-align:left}th{background:#f3f3f3}td[style],.numbers td,.judged td:nth-child(n+3):nth-child(-n+6){white-space:nowrap}figure{margin:1rem 0}figcaption{font-weight:600}.wide{overflow-x:auto}.wide svg{min-width:60rem}.words td{overflow-wrap:break-word}.judged td:nth-child(2),.judged td:nth-child(7){min-width:14rem}\
.pass{color:#0a6b2d;font-weight:700}.fail{color:#b00020;font-weight:700}.note{color:#555}\
svg{max-width:100%;height:auto}";

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

    /// A picture as plotters draws it. It becomes a part of the page.
    pub fn picture(&mut self, svg: &str) {
        let _ = writeln!(
            self.body,
            "<figure><div class=\"wide\">{}</div></figure>",
            svg.trim()
        );
    }

    /// A table of numbers.
    pub fn table(&mut self, caption: &str, head: &[String], rows: &[Vec<Cell>]) {
        self.table_of("numbers", caption, head, rows);
    }

    /// The verdict and every threshold, found and wanted.
    pub fn verdict(&mut self, judged: &Judged) {
        let (class, word) = match judged.verdict {
            Verdict::Pass => ("pass", "PASS"),
            Verdict::Fail => ("fail", "FAIL"),
        };
        self.line(class, word);
        let head = [
            "",
            "what was found",
            "found",
            "",
            "threshold",
            "name",
            "why",
        ];
        let rows: Vec<Vec<Cell>> = judged.checks.iter().map(check).collect();
        self.table_of(
            "words judged",
            "What was judged",
            &head.map(str::to_owned),
            &rows,
        );
        for note in &judged.notes {
            self.line("note", note);
        }
    }

    /// What was asked, and by which numbers it is judged.
    pub fn settings(&mut self, settings: &Settings) {
        self.heading("Options");
        let spec = settings.spec.iter().map(|spec| ("spec", spec));
        let options = settings.options.iter();
        let all = spec.chain(options.map(|(name, value)| (name.as_str(), value)));
        let rows: Vec<Vec<Cell>> = all
            .map(|(name, value)| vec![Cell::plain(name), Cell::plain(value)])
            .collect();
        let head = ["option", "value"].map(str::to_owned);
        self.table_of("words", &settings.name, &head, &rows);
        if settings.thresholds.is_empty() {
            return;
        }
        let thresholds = settings.thresholds.iter().map(|(name, threshold)| {
            [name, &exact(threshold.value), &threshold.why]
                .map(Cell::plain)
                .into()
        });
        let rows: Vec<Vec<Cell>> = thresholds.collect();
        let head = ["threshold", "value", "why"].map(str::to_owned);
        self.table_of("words", "By which numbers it is judged", &head, &rows);
    }

    fn table_of(&mut self, class: &str, caption: &str, head: &[String], rows: &[Vec<Cell>]) {
        // A caption inside of a table is no wider than the table, and would scroll with it.
        let _ = writeln!(
            self.body,
            "<figure><figcaption>{}</figcaption><div class=\"wide\"><table class=\"{class}\">",
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

fn check(check: &Check) -> Vec<Cell> {
    let (found, value) = check.numbers();
    let word = Cell::plain(if check.holds { "ok" } else { "FAILED" });
    let rest = [
        check.what.as_str(),
        &found,
        check.sign,
        &value,
        &check.name,
        &check.why,
    ];
    std::iter::once(word).chain(rest.map(Cell::plain)).collect()
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

/// A page reads nothing from anywhere: no address but the name of SVG's elements, which nothing follows, and nothing that a browser
/// would fetch or run.
#[cfg(test)]
#[track_caller]
pub fn assert_self_contained(page: &str) {
    assert!(page.starts_with("<!DOCTYPE html>") && page.ends_with("</html>\n"));
    let page = page.replace("xmlns=\"http://www.w3.org/2000/svg\"", "");
    let page = page.to_lowercase();
    for word in [
        "http", "//", "src=", "href=", "url(", "@import", "<script", "<link", "<iframe",
    ] {
        let at = page.find(word);
        assert!(at.is_none(), "{word:?}: {}", &page[at.unwrap_or(0)..]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::threshold::Threshold;

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
        assert_self_contained(&page);
    }

    #[test]
    #[should_panic(expected = "https://example.org")]
    fn an_address_in_a_page_is_noticed() {
        let mut page = Page::new("t");
        page.line("note", "see HTTPS://example.org");
        assert_self_contained(&page.finish());
    }

    #[test]
    fn a_page_says_what_was_asked_and_what_was_judged() {
        let threshold = Threshold {
            value: 0.5,
            why: "because of <b>".into(),
        };
        let check = Check::at_most("limit", &threshold, "what", 0.75);
        let settings = Settings::new(
            "gate niah".into(),
            Some("mine.toml".into()),
            vec![("seed".into(), "7".into())],
            vec![("limit".into(), threshold)],
        );
        let mut page = Page::new("t");
        page.verdict(&Judged::new(vec![check], vec!["a note".into()]));
        page.settings(&settings);
        page.picture("<svg xmlns=\"http://www.w3.org/2000/svg\"></svg>\n");
        let page = page.finish();
        assert_self_contained(&page);
        for word in [
            "class=\"fail\">FAIL<",
            "<td>0.75</td><td>&lt;=</td><td>0.5</td>",
            "because of &lt;b&gt;",
            "<td>mine.toml</td>",
            "<td>seed</td><td>7</td>",
            "a note",
            "<figure><div class=\"wide\"><svg",
        ] {
            assert!(page.contains(word), "no {word:?} in: {page}");
        }
    }
}
