//! The page in a real browser: headless Chromium, driven through a pipe by the DevTools protocol.
//!
//! `CHROMIUM=path` names another one than `chromium`; `WEIR_REPORT_KEEP=directory` keeps the report and screenshots of its page.

use std::io::{BufRead, BufReader, Write};
use std::os::fd::AsFd;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use serde_json::{Value, json};
use tempfile::TempDir;

use super::{files_of, sample_book};
use crate::experiments;
use crate::report::chapter::Book;
use weir_measure::journal;

/// Of one answer; a browser that needs longer hangs.
const ANSWER_SECONDS_MAX: u64 = 60;
/// After which a browser that was asked to end is killed.
const END_SECONDS_MAX: u64 = 5;
const FLAGS: [&str; 11] = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--hide-scrollbars",
    "--remote-debugging-pipe",
];

/// Telephone, tablet, desk, and a sheet of A4.
const VIEWS: [(u32, &str, &str); 6] = [
    (360, "light", "screen"),
    (360, "dark", "screen"),
    (768, "light", "screen"),
    (1280, "light", "screen"),
    (1280, "dark", "screen"),
    (718, "dark", "print"),
];

#[derive(Clone, Copy)]
struct View {
    width: u32,
    scheme: &'static str,
    media: &'static str,
}

/// Of one screenshot, pixels.
const PIECE_HEIGHT: usize = 1_200;

struct Browser {
    child: Child,
    requests: ChildStdin,
    answers: BufReader<ChildStdout>,
    session: Option<String>,
    number: u64,
    events: Vec<Value>,
    _profile: TempDir,
}

impl Browser {
    fn start() -> Browser {
        let profile = tempfile::tempdir().unwrap();
        let program = std::env::var("CHROMIUM").unwrap_or_else(|_| "chromium".to_owned());
        // Chromium reads requests from descriptor 3 and writes answers to 4.
        let child = Command::new("sh")
            .args(["-c", "exec \"$@\" 3<&0 4>&1 </dev/null >/dev/null 2>&1", "sh", &program])
            .args(FLAGS)
            .arg(format!("--user-data-dir={}", profile.path().display()))
            .arg("about:blank")
            .env("TMPDIR", profile.path())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .process_group(0)
            .spawn();
        let mut child = child.unwrap();
        let (requests, answers) = (child.stdin.take().unwrap(), BufReader::new(child.stdout.take().unwrap()));
        let mut browser =
            Browser { child, requests, answers, session: None, number: 0, events: Vec::new(), _profile: profile };
        let target = browser.call("Target.createTarget", json!({"url": "about:blank"}));
        let attached = browser.call("Target.attachToTarget", json!({"targetId": target["targetId"], "flatten": true}));
        browser.session = attached["sessionId"].as_str().map(str::to_owned);
        for domain in ["Page", "Runtime", "Log", "Network"] {
            browser.call(&format!("{domain}.enable"), json!({}));
        }
        browser
    }

    fn call(&mut self, method: &str, parameters: Value) -> Value {
        self.number += 1;
        let mut request = json!({"id": self.number, "method": method, "params": parameters});
        if let Some(session) = &self.session {
            request["sessionId"] = json!(session);
        }
        assert!(self.requests.write_all(format!("{request}\0").as_bytes()).is_ok(), "{}", ended_at(method));
        loop {
            let message = self.read(method);
            if message["id"] == json!(self.number) {
                assert!(message["error"].is_null(), "{method}: {}", message["error"]);
                return message["result"].clone();
            }
            self.events.push(message);
        }
    }

    fn read(&mut self, waiting_for: &str) -> Value {
        if self.answers.buffer().is_empty() {
            let mut ready = [PollFd::new(self.answers.get_ref().as_fd(), PollFlags::POLLIN)];
            let timeout = PollTimeout::try_from(Duration::from_secs(ANSWER_SECONDS_MAX)).unwrap();
            assert_eq!(poll(&mut ready, timeout), Ok(1), "the browser does not answer {waiting_for}");
        }
        let mut message = Vec::new();
        self.answers.read_until(0, &mut message).unwrap();
        assert!(message.pop().is_some(), "{}", ended_at(waiting_for));
        serde_json::from_slice(&message).unwrap()
    }

    fn wait_for(&mut self, method: &str) {
        let start = Instant::now();
        while !self.events.iter().any(|event| event["method"] == method) {
            assert!(start.elapsed().as_secs() < ANSWER_SECONDS_MAX, "the browser never said {method}");
            let event = self.read(method);
            self.events.push(event);
        }
    }

    fn open(&mut self, page: &Path, View { width, scheme, media }: View) {
        let phone = width < 500;
        let metrics = json!({"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": phone});
        self.call("Emulation.setDeviceMetricsOverride", metrics);
        let features = json!([{"name": "prefers-color-scheme", "value": scheme}]);
        self.call("Emulation.setEmulatedMedia", json!({"media": media, "features": features}));
        self.events.clear();
        self.call("Page.navigate", json!({"url": format!("file://{}", page.display())}));
        self.wait_for("Page.loadEventFired");
    }

    fn evaluate(&mut self, expression: &str) -> Value {
        let result = self.call("Runtime.evaluate", json!({"expression": expression, "returnByValue": true}));
        assert!(result["exceptionDetails"].is_null(), "{result}");
        result["result"]["value"].clone()
    }

    /// The whole page, in pieces that a picture viewer shows in full size.
    fn screenshots(&mut self, directory: &Path, View { width, scheme, media }: View) {
        let height = self.evaluate("document.documentElement.scrollHeight").as_u64().unwrap();
        for (piece, top) in (0..height).step_by(PIECE_HEIGHT).enumerate() {
            let clip = json!({"x": 0, "y": top, "width": width, "height": PIECE_HEIGHT, "scale": 1});
            let wish = json!({"format": "png", "captureBeyondViewport": true, "clip": clip});
            let shot = self.call("Page.captureScreenshot", wish);
            let path = directory.join(format!("{width}-{scheme}-{media}-{piece:02}.png"));
            std::fs::write(path, decoded(shot["data"].as_str().unwrap())).unwrap();
        }
    }

    /// What the console said, and every address that was asked for but the page's own.
    fn complaints(&self, page: &Path) -> Vec<String> {
        let own = format!("file://{}", page.display());
        let complaint = |event: &Value| match event["method"].as_str()? {
            "Runtime.exceptionThrown" | "Runtime.consoleAPICalled" | "Log.entryAdded" => {
                Some(event["params"].to_string())
            }
            "Network.requestWillBeSent" if event["params"]["request"]["url"] != json!(own) => {
                Some(format!("asked for {}", event["params"]["request"]["url"]))
            }
            _ => None,
        };
        self.events.iter().filter_map(complaint).collect()
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        // Asked first, so that it removes what it put into temporary directories.
        let asked = self.requests.write_all(b"{\"id\":0,\"method\":\"Browser.close\"}\0");
        let start = Instant::now();
        while asked.is_ok() && start.elapsed().as_secs() < END_SECONDS_MAX && matches!(self.child.try_wait(), Ok(None))
        {
            std::thread::sleep(Duration::from_millis(20));
        }
        // Its own group: its helpers end with it.
        if let Ok(group) = i32::try_from(self.child.id()) {
            let _ = nix::sys::signal::killpg(nix::unistd::Pid::from_raw(group), nix::sys::signal::Signal::SIGKILL);
        }
        let _ = self.child.wait();
    }
}

fn ended_at(method: &str) -> String {
    format!(
        "the browser ended at {method}. This test needs Chromium: `scripts/setup test` installs it, and CHROMIUM=path \
         names another one."
    )
}

/// Base64, as the protocol sends pictures.
fn decoded(text: &str) -> Vec<u8> {
    let digit = |letter: u8| match letter {
        b'A'..=b'Z' => letter - b'A',
        b'a'..=b'z' => letter - b'a' + 26,
        b'0'..=b'9' => letter - b'0' + 52,
        b'+' => 62,
        _ => 63,
    };
    let groups = text.trim_end_matches('=').as_bytes().chunks(4);
    let bytes = groups.flat_map(|group| {
        let bits = group.iter().fold(0u32, |bits, letter| bits << 6 | u32::from(digit(*letter)));
        let bits = bits << (6 * (4 - group.len()) + 8);
        bits.to_be_bytes().into_iter().take(group.len() * 6 / 8)
    });
    bytes.collect()
}

#[test]
fn the_page_reads_well_in_a_browser() {
    reads_well(&sample_book(), std::env::var_os("WEIR_REPORT_KEEP").map(PathBuf::from));
}

#[test]
fn a_page_of_every_experiment_reads_well_in_a_browser() {
    let recorded = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/lab/results.jsonl");
    let book = Book::of(&journal::read(&recorded).unwrap(), &experiments::by_name);
    assert_eq!(book.chapters.len(), experiments::ALL.len());
    reads_well(&book, None);
}

fn reads_well(book: &Book, kept: Option<PathBuf>) {
    let directory = tempfile::tempdir().unwrap();
    let page = kept.as_deref().unwrap_or(directory.path()).join("report.html");
    for (name, text) in files_of(book).unwrap() {
        let path = page.with_file_name(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }
    let mut browser = Browser::start();
    let mut problems = Vec::new();
    for (width, scheme, media) in VIEWS {
        let view = View { width, scheme, media };
        browser.open(&page, view);
        let found = browser.evaluate(include_str!("check.js"));
        let of_view = |problem: String| format!("{width} px, {scheme}, {media}: {problem}");
        problems.extend(found["problems"].as_array().unwrap().iter().map(|problem| of_view(problem.to_string())));
        problems.extend(browser.complaints(&page).into_iter().map(of_view));
        assert!(found["charts"].as_u64().unwrap() > 10 && found["texts"].as_u64().unwrap() > 500, "{found}");
        let dark = scheme == "dark" && media == "screen";
        assert_eq!((&found["title"], &found["dark"]), (&json!("How connections scale here"), &json!(dark)));
        if let Some(kept) = &kept {
            browser.screenshots(kept, view);
        }
    }
    assert!(problems.is_empty(), "{} problems:\n{}", problems.len(), problems.join("\n"));
}
