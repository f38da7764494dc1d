//! Chromium without a window, spoken to through its DevTools pipe (two named pipes, messages that end in a zero
//! byte). Its profile is a directory of its own, its processes are a group, which ends with it.
//!
//! ```text
//! let Some(mut page) = Browser::start() else { return };
//! page.open(&format!("http://127.0.0.1:{}/live/", server.port(0)));
//! page.until("document.querySelectorAll('tr').length > 1");
//! assert_eq!(page.complaints(), Vec::<String>::new());
//! ```

use crate::tools::{self, Tool};
use crate::AT_LAST;
use serde_json::{json, Value};
use std::fs::{File, OpenOptions};
use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::{channel, Receiver};
use std::time::Instant;

const FLAGS: &[&str] = &[
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-dev-shm-usage",
    "--no-first-run",
    "--remote-debugging-pipe",
];

/// A browser with one page, until dropped.
pub struct Browser {
    child: Child,
    home: PathBuf,
    out: File,
    messages: Receiver<Value>,
    session: Option<String>,
    number: u64,
    events: Vec<Value>,
}

impl Browser {
    /// Without Chromium the test is skipped.
    pub fn start() -> Option<Browser> {
        let Some(path) = tools::file("usr/lib/chromium", "chromium") else {
            tools::skip("there is no chromium");
            return None;
        };
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let turn = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("weir-chromium-{}-{turn}", std::process::id());
        let home = std::env::temp_dir().join(name);
        let _ = std::fs::remove_dir_all(&home);
        std::fs::create_dir_all(&home).unwrap();
        let pipes = [home.join("in"), home.join("out")];
        assert!(Command::new("mkfifo").args(&pipes).status().unwrap().success());
        let mut command =
            Tool::at(&path).shell("exec \"$0\" \"$@\" 3<\"$WEIR_IN\" 4>\"$WEIR_OUT\"");
        command.args(FLAGS).arg(format!("--user-data-dir={}", home.join("profile").display()));
        command.arg("--window-size=1280,900").arg("about:blank");
        command.env("WEIR_IN", &pipes[0]).env("WEIR_OUT", &pipes[1]).process_group(0);
        // It says much, and nobody would read it.
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let child = command.spawn().unwrap();
        let out = OpenOptions::new().write(true).open(&pipes[0]).unwrap();
        let messages = read_messages(File::open(&pipes[1]).unwrap());
        let (session, number, events) = (None, 0, Vec::new());
        let mut page = Browser { child, home, out, messages, session, number, events };
        page.attach();
        Some(page)
    }

    fn attach(&mut self) {
        let targets = self.call("Target.getTargets", json!({}));
        let infos = targets["targetInfos"].as_array().cloned().unwrap_or_default();
        let page = infos.iter().find(|t| t["type"] == "page").expect("a page");
        let how = json!({"targetId": page["targetId"], "flatten": true});
        let attached = self.call("Target.attachToTarget", how);
        self.session = attached["sessionId"].as_str().map(str::to_string);
        for domain in ["Page", "Runtime", "Log", "Network"] {
            self.call(&format!("{domain}.enable"), json!({}));
        }
        self.size(1280, 900);
    }

    /// What a method of the DevTools answers.
    #[track_caller]
    pub fn call(&mut self, method: &str, params: Value) -> Value {
        self.number += 1;
        let mut said = json!({"id": self.number, "method": method, "params": params});
        if let Some(session) = &self.session {
            said["sessionId"] = json!(session);
        }
        let text = format!("{said}\0");
        self.out.write_all(text.as_bytes()).expect("the browser is there");
        let end = Instant::now() + AT_LAST;
        loop {
            let left = end.saturating_duration_since(Instant::now());
            let got = self.messages.recv_timeout(left);
            let got = got.unwrap_or_else(|e| panic!("no answer to {method}: {e}"));
            if got["id"] == json!(self.number) {
                assert!(got.get("error").is_none(), "{method}: {got}");
                return got["result"].clone();
            }
            self.events.push(got);
        }
    }

    /// The page's window.
    pub fn size(&mut self, width: u32, height: u32) {
        let params =
            json!({"width": width, "height": height, "deviceScaleFactor": 1, "mobile": false});
        self.call("Emulation.setDeviceMetricsOverride", params);
    }

    /// What the system is said to prefer: `dark` or `light`.
    pub fn prefers(&mut self, scheme: &str) {
        let features = json!([{"name": "prefers-color-scheme", "value": scheme}]);
        self.call("Emulation.setEmulatedMedia", json!({"features": features}));
    }

    #[track_caller]
    pub fn open(&mut self, url: &str) {
        let got = self.call("Page.navigate", json!({"url": url}));
        assert!(got.get("errorText").is_none(), "{url}: {got}");
    }

    /// What an expression gives; a promise is waited for.
    #[track_caller]
    pub fn run(&mut self, text: &str) -> Value {
        let params = json!({"expression": text, "awaitPromise": true, "returnByValue": true});
        let got = self.call("Runtime.evaluate", params);
        assert!(got.get("exceptionDetails").is_none(), "{text}: {got}");
        got["result"].get("value").cloned().unwrap_or_default()
    }

    /// The same as text.
    #[track_caller]
    pub fn text(&mut self, text: &str) -> String {
        match self.run(text) {
            Value::String(text) => text,
            other => other.to_string(),
        }
    }

    /// Waits until an expression is true.
    #[track_caller]
    pub fn until(&mut self, text: &str) {
        // A page that is being loaded may have nothing yet to be asked.
        let asked =
            format!("(() => {{ try {{ return !!({text}); }} catch {{ return false; }} }})()");
        let is_so = crate::wait_for(|| self.run(&asked) == json!(true), AT_LAST);
        if !is_so {
            let shown = self.text("document.body.innerText");
            panic!("never true: {text}; the page says:\n{shown}\n{:?}", self.complaints());
        }
    }

    /// Presses and releases a key: a letter, a digit, `Enter`, `Tab`, `Escape`.
    pub fn key(&mut self, key: &str) {
        let text = match key {
            "Enter" => "\r",
            key if key.chars().count() == 1 => key,
            _ => "",
        };
        let code = match key {
            "Enter" => 13,
            "Tab" => 9,
            "Escape" => 27,
            _ => 0,
        };
        let down =
            json!({"type": "keyDown", "key": key, "text": text, "windowsVirtualKeyCode": code});
        self.call("Input.dispatchKeyEvent", down);
        self.call("Input.dispatchKeyEvent", json!({"type": "keyUp", "key": key}));
    }

    pub fn write(&mut self, text: &str) {
        self.call("Input.insertText", json!({"text": text}));
    }

    fn mouse(&mut self, kind: &str, (x, y): (f64, f64), clicks: u32) {
        let buttons = u32::from(kind != "mouseReleased");
        let params = json!({"type": kind, "x": x, "y": y, "button": "left", "buttons": buttons,
            "clickCount": clicks});
        self.call("Input.dispatchMouseEvent", params);
    }

    /// The middle of an element, once there is one; it is scrolled to.
    #[track_caller]
    fn place(&mut self, selector: &str) -> [f64; 4] {
        self.until(&format!("document.querySelector({selector:?})"));
        let got = self.run(&format!(
            "(() => {{ const e = document.querySelector({selector:?}); \
             e.scrollIntoView({{block: 'center', behavior: 'instant'}}); \
             const r = e.getBoundingClientRect(); return [r.x, r.y, r.width, r.height]; }})()"
        ));
        [0, 1, 2, 3].map(|n| got[n].as_f64().unwrap_or_default())
    }

    #[track_caller]
    pub fn click(&mut self, selector: &str) {
        self.clicks(selector, 1);
    }

    #[track_caller]
    pub fn double_click(&mut self, selector: &str) {
        self.clicks(selector, 1);
        self.clicks(selector, 2);
    }

    #[track_caller]
    fn clicks(&mut self, selector: &str, count: u32) {
        let [x, y, width, height] = self.place(selector);
        let at = (x + width / 2.0, y + height / 2.0);
        self.mouse("mousePressed", at, count);
        self.mouse("mouseReleased", at, count);
    }

    /// Draws over an element, from and to these shares of its width.
    #[track_caller]
    pub fn drag(&mut self, selector: &str, from: f64, to: f64) {
        let [x, y, width, height] = self.place(selector);
        let at = |share: f64| (x + width * share, y + height / 2.0);
        self.mouse("mouseMoved", at(from), 0);
        self.mouse("mousePressed", at(from), 1);
        for step in 1..=4 {
            self.mouse("mouseMoved", at(from + (to - from) * f64::from(step) / 4.0), 1);
        }
        self.mouse("mouseReleased", at(to), 1);
    }

    /// What the console was told of errors and warnings, and exceptions that nobody has caught.
    pub fn complaints(&mut self) -> Vec<String> {
        self.run("1");
        let is_bad = |e: &&Value| match e["method"].as_str().unwrap_or_default() {
            "Runtime.exceptionThrown" => true,
            "Runtime.consoleAPICalled" => {
                matches!(e["params"]["type"].as_str(), Some("error" | "warning"))
            }
            "Log.entryAdded" => {
                matches!(e["params"]["entry"]["level"].as_str(), Some("error" | "warning"))
            }
            _ => false,
        };
        self.events.iter().filter(is_bad).map(|e| e["params"].to_string()).collect()
    }

    /// Every address that the page has asked for.
    pub fn asked(&mut self) -> Vec<String> {
        self.run("1");
        let sent = self.events.iter().filter(|e| e["method"] == "Network.requestWillBeSent");
        let url = |e: &Value| e["params"]["request"]["url"].as_str().map(str::to_string);
        sent.filter_map(url).collect()
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        let group = format!("-{}", self.child.id());
        let _ = Command::new("kill").args(["-KILL", "--", &group]).stderr(Stdio::null()).status();
        let _ = self.child.wait();
        let _ = std::fs::remove_dir_all(&self.home);
    }
}

fn read_messages(pipe: File) -> Receiver<Value> {
    let (to, messages) = channel();
    std::thread::spawn(move || {
        let mut pipe = BufReader::new(pipe);
        let mut text = Vec::new();
        while pipe.read_until(0, &mut text).is_ok_and(|n| n > 0) {
            text.pop();
            let Ok(message) = serde_json::from_slice(&text) else { break };
            if to.send(message).is_err() {
                break;
            }
            text.clear();
        }
    });
    messages
}
