//! Owns a headless Chromium for a test, by the protocol WebDriver.

use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

/// A browser with one page, which ends when this is dropped.
pub(crate) struct Browser {
    driver: Child,
    session: String,
}

impl Browser {
    /// One that shows `url`; `None`, and said so, where there is no Chromium or no driver of it.
    pub(crate) fn show(url: &str, test: &str) -> Option<Browser> {
        if !["chromium", "chromedriver"].into_iter().all(is_in_path) {
            say_skipped(test, "install chromium and chromium-driver");
            return None;
        }
        let driver = Command::new("chromedriver").arg("--port=0").stdout(Stdio::piped()).spawn();
        let mut driver = driver.unwrap();
        let lines = BufReader::new(driver.stdout.take().unwrap()).lines().map_while(Result::ok);
        let port = lines.filter_map(|it| Some(it.split_once("on port ")?.1.trim().to_owned()));
        let port =
            port.filter_map(|it| it.trim_end_matches('.').parse().ok()).find(|it: &u16| *it != 0);
        let arguments =
            ["--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"];
        let capabilities = json!({ "capabilities": { "alwaysMatch": {
            "goog:loggingPrefs": { "browser": "ALL", "performance": "ALL" },
            "goog:chromeOptions": { "args": arguments },
        } } });
        let root = format!("http://127.0.0.1:{}/session", port.expect("the driver says its port"));
        let mut browser = Browser { driver, session: root.clone() };
        let id = browser.post("", &capabilities)["sessionId"].as_str().unwrap().to_owned();
        browser.session = format!("{root}/{id}");
        browser.post("/url", &json!({ "url": url }));
        Some(browser)
    }

    fn post(&self, path: &str, body: &Value) -> Value {
        let agent = ureq::Agent::config_builder().http_status_as_error(false).build().new_agent();
        let mut answer = agent.post(format!("{}{path}", self.session)).send_json(body).unwrap();
        let value = answer.body_mut().read_json::<Value>().unwrap()["value"].take();
        assert!(answer.status().is_success(), "{path}: {value}");
        value
    }

    /// What `script` returns.
    pub(crate) fn run(&self, script: &str) -> Value {
        self.post("/execute/sync", &json!({ "script": script, "args": [] }))
    }

    /// Waits until `expression` is true on the page.
    pub(crate) fn wait_for(&self, expression: &str) {
        let began = Instant::now();
        while self.run(&format!("return Boolean({expression})")) != true {
            let page = || self.run("return document.body.innerText");
            assert!(began.elapsed() < Duration::from_secs(60), "never {expression}: {}", page());
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// A command of the protocol of Chromium's own tools.
    pub(crate) fn command(&self, name: &str, parameters: &Value) {
        self.post("/goog/cdp/execute", &json!({ "cmd": name, "params": parameters }));
    }

    /// What was logged since the last time, of one kind.
    pub(crate) fn log(&self, kind: &str) -> Vec<Value> {
        self.post("/se/log", &json!({ "type": kind })).as_array().unwrap().clone()
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        // Ends Chromium.
        let _ = ureq::delete(&self.session).call();
        let _ = self.driver.kill();
        let _ = self.driver.wait();
    }
}

fn is_in_path(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|it| it.join(program).is_file())
}

/// Says, where the gate counts them, that a test did not run.
fn say_skipped(test: &str, reason: &str) {
    let line = format!("SKIPPED {test}: {reason}\n");
    std::io::stderr().write_all(line.as_bytes()).unwrap();
    if let Some(list) = std::env::var_os("MONOLITE_SKIPS") {
        let file = std::fs::OpenOptions::new().append(true).create(true).open(list);
        file.unwrap().write_all(line.as_bytes()).unwrap();
    }
}
