//! Pages that are not as they must be. Each must be found wrong, and for its own reason.

use super::judge::Kind;

/// A way to spoil a page.
pub struct Arm {
    /// What is done.
    pub name: &'static str,
    /// What must be found.
    pub kind: Kind,
    spoil: fn(&str) -> String,
}

impl Arm {
    /// The spoiled page.
    pub fn spoil(&self, html: &str) -> String {
        (self.spoil)(html)
    }
}

/// Those of a page with coloured cells.
pub const ARMS: [Arm; 19] = [
    arm("a blank page", Kind::Blank, |html| {
        let (head, _) = split(html, "<body>");
        format!("{head}<body></body></html>")
    }),
    arm("no style: tables", Kind::Lines, without_style),
    arm("no style: verdict", Kind::Verdict, without_style),
    arm("no doctype", Kind::Document, |html| {
        html.replacen("<!DOCTYPE html>", "", 1)
    }),
    arm("a table that is wider than the page", Kind::Wide, |html| {
        styled(html, ".wide{overflow:visible}table{width:3000px}")
    }),
    arm("a table that a desk must scroll", Kind::Cut, |html| {
        styled(html, "table{width:3000px}")
    }),
    arm("cells that cut their text", Kind::Cut, |html| {
        styled(
            html,
            "td,th{max-width:2rem;overflow:hidden;white-space:nowrap}",
        )
    }),
    arm("figures in several lines", Kind::Wrapped, |html| {
        styled(
            html,
            "td{white-space:normal !important;width:1px}table{width:1px}",
        )
    }),
    arm("words in two lines", Kind::Broken, |html| {
        styled(html, ".wide{width:9rem}th{overflow-wrap:anywhere}")
    }),
    arm("text that sticks out", Kind::Spills, |html| {
        styled(html, "h1{width:3rem;white-space:nowrap}")
    }),
    arm("lines on each other", Kind::Overlap, |html| {
        styled(html, "p{margin:0 0 -2rem}")
    }),
    arm("small letters", Kind::Small, |html| {
        styled(html, "td{font-size:7px}")
    }),
    arm("grey on white", Kind::Faint, |html| {
        styled(html, "p.note{color:#bbb}")
    }),
    arm("a cover", Kind::Unpainted, |html| {
        styled(
            html,
            "body::after{content:'';position:fixed;inset:0;background:#fff}",
        )
    }),
    arm("cells without their colour", Kind::Cell, |html| {
        styled(html, "td{background:none !important}")
    }),
    arm("an empty plot", Kind::Unpainted, |html| {
        with(html, "<svg width=\"600\" height=\"300\"></svg>")
    }),
    arm(
        "a plot that the browser cannot read",
        Kind::Complaint,
        |html| {
            with(
                html,
                "<svg width=\"600\" height=\"300\"><path d=\"M nothing\"/></svg>",
            )
        },
    ),
    arm("a picture from the network", Kind::Network, |html| {
        with(html, "<img src=\"https://example.invalid/a.png\">")
    }),
    arm("a script", Kind::Network, |html| {
        with(html, "<script>document.title = 'x'</script>")
    }),
];

/// Those of a page with plots.
pub const PLOT_ARMS: [Arm; 4] = [
    arm("plots that were left out", Kind::Missing, |html| {
        styled(html, ".wide svg{display:none}")
            .replace("<svg", "<b")
            .replace("</svg", "</b")
    }),
    arm("plots too small to read", Kind::Small, |html| {
        styled(html, ".wide svg{min-width:0;width:30rem}")
    }),
    arm("plots that do not come out", Kind::Unpainted, |html| {
        styled(html, ".wide svg{opacity:0}")
    }),
    arm("plots that are cut off", Kind::Cut, |html| {
        styled(html, ".wide{overflow:hidden;width:20rem}")
    }),
];

const fn arm(name: &'static str, kind: Kind, spoil: fn(&str) -> String) -> Arm {
    Arm { name, kind, spoil }
}

/// The page with one more rule, which comes last.
fn styled(html: &str, rule: &str) -> String {
    html.replacen("</head>", &format!("<style>{rule}</style></head>"), 1)
}

/// The page with something more at its beginning.
fn with(html: &str, more: &str) -> String {
    html.replacen("<body>", &format!("<body>{more}"), 1)
}

fn without_style(html: &str) -> String {
    let (before, rest) = split(html, "<style>");
    let (_, after) = split(rest, "</style>");
    format!("{before}{after}")
}

/// What stands before and behind `mark`; everything before it where it is missing.
fn split<'a>(html: &'a str, mark: &str) -> (&'a str, &'a str) {
    html.split_once(mark).unwrap_or((html, ""))
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: &str = "<!DOCTYPE html><html><head><style>td{color:red}</style></head><body><p>a</p></body></html>";

    #[test]
    fn every_arm_changes_the_page_and_leaves_its_head() {
        for arm in ARMS.iter().chain(&PLOT_ARMS) {
            let spoiled = arm.spoil(PAGE);
            assert_ne!(spoiled, PAGE, "{}", arm.name);
            assert!(spoiled.contains("<head>"), "{}", arm.name);
        }
    }

    #[test]
    fn arms_take_out_and_add_what_they_say() {
        assert!(!without_style(PAGE).contains("red"));
        let styled = styled(PAGE, "p{margin:0}");
        assert!(styled.find("p{margin:0}") > styled.find("td{color:red}"));
        assert!(!ARMS[0].spoil(PAGE).contains("<p>"));
    }
}
