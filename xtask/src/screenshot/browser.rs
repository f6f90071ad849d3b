//! A browser: finding one that runs, and opening a page in it.

use std::ffi::OsString;
use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use rolling_kv_stage::env::Env;

use crate::error::{Error, Result};
use crate::place::Place;
use crate::process::Run;
use crate::wheels::{self, BROWSER};

use super::picture::Picture;
use super::seen::Seen;

/// The variable that names a browser.
pub const VARIABLE: &str = "ROLLING_KV_BROWSER";

/// The names under which Chromium and its relatives are installed.
const NAMES: [&str; 5] = [
    "chromium",
    "chromium-browser",
    "google-chrome",
    "google-chrome-stable",
    "chrome",
];

/// What all of them are told. The sandbox does not work for root and in many containers, and the only pages are ours.
const OPTIONS: [&str; 11] = [
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-extensions",
    "--disable-background-networking",
    "--no-first-run",
    "--hide-scrollbars",
    "--force-device-scale-factor=1",
    "--enable-logging=stderr",
    "--dump-dom",
];

/// A page has this much of the browser's clock to settle.
const SETTLE: &str = "--virtual-time-budget=5000";

/// The longest that one page may take, on a slow machine under load.
const LIMIT: Duration = Duration::from_secs(120);

/// The page is measured in a frame, since a window cannot be made narrower than some browsers like.
const AROUND: &str = include_str!("around.html");
const PROBE: &str = include_str!("probe.js");
const QT: &str = include_str!("qt.py");

/// So much larger than the frame the window is. Some browsers take a part of a window's height for themselves.
const WINDOW_LEAST_PX: usize = 640;
const WINDOW_MORE_PX: usize = 200;

/// The height that a page is given first; it is opened again in its own height if that is larger.
const HEIGHT_PX: usize = 1200;

/// The page may use styles and pictures that stand in it. Everything else is refused, and the refusal noted.
const POLICY: &str =
    "default-src 'none'; style-src 'unsafe-inline'; img-src data:; script-src 'nonce-rolling-kv'";

/// A page on which a browser shows that it paints letters and colours.
const EASY: &str = "<!DOCTYPE html><html><head><title>t</title></head><body style=\"background:#00f\">\
                    <p style=\"color:#fff;font:40px sans-serif\">Hello</p></body></html>";

/// A browser that was seen to paint.
#[derive(Debug)]
pub struct Browser {
    program: PathBuf,
    before: Vec<OsString>,
    env: Vec<(&'static str, OsString)>,
}

impl Browser {
    /// The one that the variable names, else one of the system, else one from wheels under the target folder. Answers why there is
    /// none where none of them paints.
    pub fn find(place: &Place) -> Result<Result<Self, String>> {
        let env = Env::from_process();
        if let Some(program) = env.path(VARIABLE) {
            let named = Self::chromium(program);
            return match named.paints(place) {
                Ok(()) => Ok(Ok(named)),
                Err(why) => Err(Error::wrong(
                    format!("the browser that {VARIABLE} names does not work: {why}"),
                    format!("name a Chromium in {VARIABLE}, or unset it"),
                )),
            };
        }
        let mut reasons = Vec::new();
        for program in NAMES.iter().filter_map(|name| env.which(name)) {
            let found = Self::chromium(program);
            match found.paints(place) {
                Ok(()) => return Ok(Ok(found)),
                Err(why) => reasons.push(format!("{}: {why}", found.program.display())),
            }
        }
        if reasons.is_empty() {
            reasons.push(format!("none of {} is on PATH", NAMES.join(", ")));
        }
        match Self::from_wheels(place).and_then(|found| found.paints(place).map(|()| found)) {
            Ok(found) => Ok(Ok(found)),
            Err(why) => {
                reasons.push(format!("QtWebEngine from wheels: {why}"));
                Ok(Err(reasons.join("; ")))
            }
        }
    }

    /// How it is called.
    pub fn name(&self) -> String {
        let words = std::iter::once(self.program.as_os_str())
            .chain(self.before.iter().map(|word| word.as_os_str()));
        words
            .map(|word| word.to_string_lossy())
            .collect::<Vec<_>>()
            .join(" ")
    }

    fn chromium(program: PathBuf) -> Self {
        Self {
            program,
            before: Vec::new(),
            env: Vec::new(),
        }
    }

    /// QtWebEngine, driven by a script that takes Chromium's options.
    fn from_wheels(place: &Place) -> Result<Self, String> {
        let folder = place.work().join("browser").join(BROWSER[0].version);
        let script = folder.join("browser.py");
        if !script.is_file() {
            wheels::install(&BROWSER, &folder).map_err(|error| short(&error))?;
        }
        fs::write(&script, QT).map_err(|error| error.to_string())?;
        Ok(Self {
            program: "python3".into(),
            before: vec![script.into()],
            env: vec![
                ("PYTHONPATH", folder.into()),
                ("QT_QPA_PLATFORM", "offscreen".into()),
                ("QT_QUICK_BACKEND", "software".into()),
                ("QTWEBENGINE_DISABLE_SANDBOX", "1".into()),
                ("QTWEBENGINE_CHROMIUM_FLAGS", OPTIONS[2..4].join(" ").into()),
            ],
        })
    }

    /// Whether letters and colours of an easy page come out.
    fn paints(&self, place: &Place) -> Result<(), String> {
        let (_, picture) = self.open(place, EASY, 640).map_err(|error| short(&error))?;
        let ground = picture.at(2.0, 2.0);
        match picture.extremes(&picture.all()) {
            Some((_, light)) if light == [255; 3] && ground == Some([0, 0, 255]) => Ok(()),
            _ => Err(format!(
                "it paints no letters (are there fonts?), or not in their colours: {ground:?} where blue is asked for"
            )),
        }
    }

    /// Opens a page in a window of that width, and as high as it is.
    pub fn open(&self, place: &Place, html: &str, width_px: usize) -> Result<(Seen, Picture)> {
        let first = self.look(place, html, width_px, HEIGHT_PX)?;
        let high = first.0.content_height_px.ceil() as usize;
        if high <= HEIGHT_PX {
            return Ok(first);
        }
        self.look(place, html, width_px, high)
    }

    fn look(
        &self,
        place: &Place,
        html: &str,
        width_px: usize,
        height_px: usize,
    ) -> Result<(Seen, Picture)> {
        let work = place.work();
        fs::create_dir_all(&work).map_err(Error::file("make", &work))?;
        let dir = tempfile::Builder::new()
            .prefix("browser-")
            .tempdir_in(&work)
            .map_err(Error::file("make a folder in", &work))?;
        let write = |name: &str, text: &str| {
            let file = dir.path().join(name);
            fs::write(&file, text)
                .map_err(Error::file("write", &file))
                .map(|()| file)
        };
        write("page.html", &with_probe(html)?)?;
        let around = AROUND
            .replace("@WIDTH@", &width_px.to_string())
            .replace("@HEIGHT@", &height_px.to_string());
        let around = write("around.html", &around)?;
        let screenshot = dir.path().join("page.png");

        let option = |name: &str, value: &dyn AsRef<std::ffi::OsStr>| {
            let mut word = OsString::from(format!("--{name}="));
            word.push(value.as_ref());
            word
        };
        let window = (width_px.max(WINDOW_LEAST_PX), height_px + WINDOW_MORE_PX);
        let run = Run::new(&self.program)
            .args(&self.before)
            .args(OPTIONS)
            .arg(SETTLE)
            .arg(option("window-size", &format!("{},{}", window.0, window.1)))
            .arg(option("user-data-dir", &dir.path().join("profile")))
            .arg(option("screenshot", &screenshot))
            .arg(format!("file://{}", around.display()))
            .dir(dir.path())
            .limit(LIMIT)
            .next(format!(
                "name a browser that works in {VARIABLE}, a Chromium"
            ));
        let ended = self
            .env
            .iter()
            .fold(run, |run, (name, value)| run.env(name, value))
            .quietly()?
            .success()?;

        let mut seen = measured(&String::from_utf8_lossy(&ended.stdout))?;
        seen.complaints.extend(console(&ended.text));
        let whole = Picture::read(&screenshot)?;
        let found = (whole.width, whole.height);
        let picture = whole
            .corner(width_px, height_px)
            .filter(|_| found == window)
            .ok_or_else(|| {
                Error::wrong(
                    format!(
                        "the screenshot has {} x {} px where {} x {} are asked for",
                        found.0, found.1, window.0, window.1
                    ),
                    format!("name another browser in {VARIABLE}"),
                )
            })?;
        Ok((seen, picture))
    }
}

/// The page with the policy and the probe in its head.
fn with_probe(html: &str) -> Result<String> {
    let (before, after) = html
        .split_once("<head>")
        .ok_or_else(|| Error::wrong("the page has no <head>", "see what writes it"))?;
    Ok(format!(
        "{before}<head><meta http-equiv=\"Content-Security-Policy\" content=\"{POLICY}\">\
         <script nonce=\"rolling-kv\">{PROBE}</script>{after}"
    ))
}

/// What the probe sent, as the document around the page holds it.
fn measured(document: &str) -> Result<Seen> {
    let inside = document
        .split_once("id=\"measured\"")
        .and_then(|(_, rest)| rest.split_once('>'))
        .and_then(|(_, rest)| rest.split_once("</output>"))
        .map_or("", |(text, _)| text);
    serde_json::from_str(inside).map_err(|error| {
        Error::wrong(
            format!(
                "the browser printed no measurements ({error}): {:?}",
                inside.get(..200).unwrap_or(inside)
            ),
            format!("name a current Chromium in {VARIABLE}"),
        )
    })
}

/// What was written to the browser's console.
fn console(log: &str) -> Vec<String> {
    let lines = log.lines().filter_map(|line| line.split_once("CONSOLE"));
    lines.map(|(_, line)| format!("console{line}")).collect()
}

/// An error in a few words: for a program that failed, how it ended and the last thing that it said.
fn short(error: &Error) -> String {
    match error {
        Error::Ended { ended, tail, .. } => {
            match tail.lines().rfind(|line| !line.trim().is_empty()) {
                Some(line) => format!("{ended}, {}", line.trim()),
                None => ended.clone(),
            }
        }
        other => other
            .to_string()
            .lines()
            .next()
            .unwrap_or_default()
            .to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_probe_stands_before_everything_that_the_page_brings() {
        let page = with_probe(EASY).unwrap();
        let place = |text: &str| page.find(text).unwrap();
        assert!(place("<head>") < place(POLICY) && place(POLICY) < place("postMessage"));
        assert!(place("postMessage") < place("<title>"));
        assert!(with_probe("<p>no head").is_err());
    }

    #[test]
    fn measurements_are_read_out_of_the_document() {
        let document = |text: &str| {
            format!("<body><output id=\"measured\" hidden=\"\">{text}</output></body>")
        };
        let text = r#"{"title":"t","charset":"UTF-8","standards":true,"width_px":400,"content_width_px":400,
            "content_height_px":9,"texts":[],"blocks":[],"complaints":[],"refused":[],"fetched":[]}"#;
        assert_eq!(measured(&document(text)).unwrap().title, "t");
        for broken in ["", "{}", "hello"] {
            assert!(measured(&document(broken)).is_err(), "{broken}");
        }
        assert!(measured("<body></body>").is_err());
    }

    #[test]
    fn lines_of_the_console_are_told_from_the_browsers_own() {
        let log = "[1:2:ERROR:bus.cc(4)] no bus\n[1:2:INFO:CONSOLE(7)] \"bad path\", source: page.html (7)\n";
        let lines = console(log);
        assert_eq!(lines.len(), 1);
        assert!(lines[0].contains("bad path"));
    }

    #[test]
    fn a_reason_is_short() {
        let failed = |script: &str| {
            let ended = Run::new("sh").args(["-c", script]).quietly().unwrap();
            short(&ended.failure())
        };
        assert_eq!(failed("echo a; echo b; echo; exit 3"), "exit code 3, b");
        assert_eq!(failed("exit 1"), "exit code 1");
        assert_eq!(short(&Error::wrong("what", "then")), "what");
    }

    #[test]
    fn the_frame_takes_its_size() {
        assert!(AROUND.contains("@WIDTH@") && AROUND.contains("@HEIGHT@"));
    }
}
