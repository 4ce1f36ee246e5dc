//! The dashboard as a browser shows it.

use std::sync::atomic::{AtomicBool, Ordering};

use serde_json::{Value, json};

use crate::admin::{create, run};
use crate::browser::Browser;
use crate::served::Served;

/// Has the writer for five seconds, the engine's limit of a write.
const SLOW: &str = "INSERT INTO t WITH RECURSIVE c(n) AS \
                    (SELECT 1 UNION ALL SELECT n + 1 FROM c WHERE n < 1e12) SELECT sum(n) FROM c";

/// What would run if a text of a client became an element.
const HOSTILE: &str =
    "</code></script><img src=x onerror='window.hit = 1'><script>hit = 1</script>";

fn text_has(selector: &str, text: &str) -> String {
    format!("document.querySelector('{selector}')?.innerText.includes({})", json!(text))
}

#[test]
fn the_page_names_the_holder_of_the_writer_and_draws_figures() {
    let served = Served::one();
    let Some(browser) = Browser::show(&served.admin, "dashboard") else { return };
    browser.wait_for(&text_has("main", "No database is open"));
    served.stream().execute("CREATE TABLE t(x)").unwrap();
    browser.wait_for(&text_has(".writer", "No call has the writer"));
    let is_done = AtomicBool::new(false);
    std::thread::scope(|threads| {
        threads.spawn(|| served.stream().execute(SLOW));
        for _ in 0..8 {
            threads.spawn(|| {
                while !is_done.load(Ordering::Relaxed) {
                    served.stream().execute("INSERT INTO t VALUES (1)").unwrap();
                }
            });
        }
        // True only while the call still has the writer, so the page is not late.
        browser.wait_for(&text_has(".writer.held.waits", "WITH RECURSIVE"));
        let held = browser.run("return document.querySelector('.writer').innerText");
        let held = held.as_str().unwrap();
        assert!(held.contains("has the writer (write)") && held.contains("wait for it"), "{held}");
        // A line with four points, and writes among them.
        browser.wait_for(
            "[...document.querySelectorAll('figure')].some(it => \
             /Writes\\/s[^]*max [1-9]/.test(it.innerText) \
             && it.querySelector('path').getAttribute('d').split('L').length > 3)",
        );
        browser.wait_for(&text_has("#slow", "WITH RECURSIVE"));
        is_done.store(true, Ordering::Relaxed);
    });
    assert_eq!(browser.log("browser"), [] as [Value; 0], "no error on the console");
    let requests = browser.log("performance").into_iter().filter_map(|entry| {
        let message: Value = serde_json::from_str(entry["message"].as_str()?).ok()?;
        let message = &message["message"];
        let is_request = message["method"] == "Network.requestWillBeSent";
        is_request.then(|| message["params"]["request"]["url"].as_str().unwrap().to_owned())
    });
    let requests: Vec<_> = requests.collect();
    assert!(requests.len() > 3);
    let is_own =
        |url: &&String| url.starts_with(&format!("{}/", served.admin)) || url.starts_with("data:");
    assert_eq!(requests.iter().find(|url| !is_own(url)), None, "no other host is asked");

    let colours = ["light", "dark"].map(|scheme| {
        let feature = json!({ "name": "prefers-color-scheme", "value": scheme });
        browser.command("Emulation.setEmulatedMedia", &json!({ "features": [feature] }));
        for width in [360, 768, 1440] {
            let size =
                json!({ "width": width, "height": 800, "deviceScaleFactor": 1, "mobile": false });
            browser.command("Emulation.setDeviceMetricsOverride", &size);
            let widths = browser.run(
                "const { scrollWidth, clientWidth } = document.documentElement;
                 return [innerWidth, scrollWidth - clientWidth]",
            );
            assert_eq!(widths, json!([width, 0]), "nothing is wider than the window");
        }
        browser.run("return getComputedStyle(document.body).backgroundColor")
    });
    assert_eq!(colours, [json!("rgb(255, 255, 255)"), json!("rgb(20, 23, 26)")]);
}

#[test]
fn the_page_says_when_the_server_is_gone_and_recovers() {
    let served = Served::one();
    let Some(browser) = Browser::show(&served.admin, "dashboard, server gone") else { return };
    browser.wait_for(&text_has("main", "No database is open"));
    let network = |is_offline: bool| {
        let unlimited = json!({ "offline": is_offline, "latency": 0,
            "downloadThroughput": -1, "uploadThroughput": -1 });
        browser.command("Network.emulateNetworkConditions", &unlimited);
    };
    network(true);
    browser.wait_for(&text_has("#state[role=status]", "has not answered since"));
    network(false);
    served.stream().execute("CREATE TABLE t(x)").unwrap();
    browser.wait_for(&text_has("#state:not([role])", "1 database open"));
    browser.wait_for(&text_has(".writer", "No call has the writer"));
}

#[test]
fn of_many_databases_the_busiest_are_first_and_a_filter_finds_the_rest() {
    let served = Served::many();
    let Some(browser) = Browser::show(&served.admin, "dashboard, filter") else { return };
    for at in 0..24 {
        let name = format!("db-{at:02}");
        assert_eq!(create(&served, &name), 200);
        assert_eq!(run(&served, &name, "CREATE TABLE t(x)").0, 200);
    }
    browser.wait_for(&text_has("#rest", "4 more, less busy"));
    assert_eq!(browser.run("return document.querySelectorAll('article').length"), 20);
    std::thread::scope(|threads| {
        threads.spawn(|| run(&served, "db-17", SLOW));
        browser.wait_for(&text_has("article:first-child", "db-17"));
    });
    browser.run(
        "const filter = document.querySelector('input');
         filter.value = 'B-23';
         filter.dispatchEvent(new Event('input'))",
    );
    browser.wait_for("document.querySelectorAll('article').length === 1");
    browser.wait_for(&text_has("article", "db-23"));
}

#[test]
fn texts_of_clients_become_no_elements() {
    let served = Served::one();
    let Some(browser) = Browser::show(&served.admin, "dashboard, hostile texts") else { return };
    let mut client = served.stream();
    client.execute("CREATE TABLE t(x)").unwrap();
    client.execute(&format!("/* {HOSTILE} */ {SLOW}")).unwrap_err();
    browser.wait_for(&text_has("#slow code", HOSTILE));
    // All texts that there are, names among them, but for the words of an enumeration.
    let hostile = format!(
        "const text = await (await fetch('/now')).text();
         const every = (key, it) => typeof it !== 'string' || key === 'kind' ? it : {0};
         const now = JSON.parse(text, every), [one] = now.databases;
         const call = {{ ...one.stats.slow_transactions[0], time: {{ secs: 1, nanos: 0 }} }};
         one.running = [{{ ...call, has_writer: true }}, call];
         one.open_transactions = [{{ ...call, is_running: true }}];
         one.stats.archive = {{ copies_because: {0}, last_error: {0}, lag_ms: 1 }};
         clearTimeout(timer);
         show(now, performance.now() / 1e3);",
        json!(HOSTILE)
    );
    browser.run(&hostile);
    for selector in ["h2", ".writer p", ".writer code", "li .who", "li code", "section .warm"] {
        browser.wait_for(&text_has(selector, HOSTILE));
    }
    let made = "return [document.images.length, document.scripts.length, window.hit ?? null]";
    assert_eq!(browser.run(made), json!([0, 1, null]));
    assert_eq!(browser.log("browser"), [] as [Value; 0]);
}
