use super::*;
use crate::sources::{Sources, Told};
use crate::ui::Key;
use ratatui_core::backend::TestBackend;
use ratatui_core::terminal::Terminal;
use serde_json::{json, Value};
use std::time::{Duration, Instant};

fn tree(at_us: u64, requests: u64, name: &str) -> Value {
    json!({
        "now_us": at_us,
        "nginx": {"version": "1", "pid": 7},
        "connections": {"active": 3, "idle": 2, "accepted": requests, "dropped": 0},
        "http": {
            "requests": {"total": requests, "current": 1},
            "server_zones": {name: {
                "requests": requests,
                "responses": {"2xx": requests, "3xx": 0, "4xx": 0, "5xx": requests / 10},
                "received": requests * 100, "sent": requests * 1024, "discarded": 0,
                "latency": {"count": requests, "sum_us": requests, "max_us": 3000,
                            "buckets": [1056, requests]}}},
            "upstreams": {"u": {"peers": [
                {"server": "10.0.0.1:80", "state": "up", "requests": requests},
                {"server": "10.0.0.2:80", "state": "unhealthy", "requests": 0}]}}
        },
        "problems": [{"t": 1000, "status": 502, "ms": 3000, "method": "GET", "server": "a.test",
                      "path": "/evil\u{1b}[2J\u{202e}", "n": 1}]
    })
}

fn told(tree: &Value) -> Told {
    let visitors = json!({"z": {"left_out": 0, "summary": {"total_requests": 5},
        "panels": {"requests": {"title": "Requests", "rows": [
            {"name": "/\u{9b}x", "hits": 3, "bytes": 2048, "visitors": 1}]}}}});
    Told {
        at: Instant::now(),
        figures: Ok(tree.to_string().into_bytes()),
        visitors: Some(Ok(visitors.to_string().into_bytes())),
    }
}

fn sources(names: &[&str]) -> Sources {
    let mut sources = Sources::new(names.iter().map(|n| (*n).to_string()));
    for n in 0..names.len() {
        sources.take(n, told(&tree(1_000_000, 100, "a.test")));
        sources.take(n, told(&tree(2_000_000, 150, "a.test")));
    }
    sources
}

fn screen(picture: &Picture, ui: &mut Ui, (width, height): (u16, u16)) -> String {
    let mut history = History::default();
    (0..3).for_each(|_| history.add(picture));
    let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
    let paint = Paint { is_coloured: true };
    let mut drawn = (0, 0);
    let shown = Shown { picture, history: &history, ui, paint: &paint };
    terminal.draw(|frame| drawn = draw(frame.buffer_mut(), &shown, None)).unwrap();
    (ui.page, ui.lines) = drawn;
    let buffer = terminal.backend().buffer();
    let rows = (0..height).map(|y| {
        let row: String = (0..width).map(|x| buffer[(x, y)].symbol()).collect();
        row.trim_end().to_string()
    });
    rows.collect::<Vec<_>>().join("\n")
}

#[test]
fn the_overview_has_rates_of_the_while() {
    let picture = sources(&["local"]).picture(false);
    let text = screen(&picture, &mut Ui::default(), (80, 24));
    for part in ["requests/s         50", "connections         3", "5xx/s             5.0"] {
        assert!(text.contains(part), "{part}\n{text}");
    }
    assert!(text.contains("requests/s         50  ███"), "{text}");
    assert!(text.contains("p99             1.1ms"), "{text}");
    assert!(text.contains("/evil\\x1b[2J\\u{202e}"), "{text}");
}

#[test]
fn servers_are_added_up_and_one_that_is_not_there_is_no_zero() {
    let mut sources = sources(&["one", "two"]);
    let text = screen(&sources.picture(false), &mut Ui::default(), (100, 30));
    assert!(text.contains("requests/s        100"), "{text}");
    let error = Err("connection refused".to_string());
    sources.take(1, Told { at: Instant::now(), figures: error, visitors: None });
    let picture = sources.picture(false);
    let text = screen(&picture, &mut Ui::default(), (100, 30));
    assert!(text.contains("requests/s         50"), "{text}");
    assert!(text.contains("1 of 2 do not answer"), "{text}");
    assert!(text.contains("two: connection refused"), "{text}");
    let row = text.lines().find(|l| l.starts_with("two  ")).unwrap();
    assert!(row.contains("down") && row.ends_with('-') && !row.contains('0'), "{row}");
    let told: Value = serde_json::from_str(&crate::json::document(&picture)).unwrap();
    assert_eq!(told["sources"][1]["requests_per_second"], Value::Null);
    assert_eq!(told["sources"][1]["error"], "connection refused");
    assert_eq!(told["overview"]["requests_per_second"], 50.0);
    // It is back: what came meanwhile is of all that while.
    sources.take(1, told_later());
    let told: Value =
        serde_json::from_str(&crate::json::document(&sources.picture(false))).unwrap();
    assert_eq!(told["sources"][1]["requests_per_second"], 10.0);
}

fn told_later() -> Told {
    told(&tree(7_000_000, 200, "a.test"))
}

#[test]
fn rows_are_split_by_servers() {
    let sources = sources(&["one", "two"]);
    let mut ui = Ui { view: 1, ..Ui::default() };
    let text = screen(&sources.picture(false), &mut ui, (80, 10));
    assert!(text.lines().any(|l| l.starts_with("a.test ") && l.contains(" 100 ")), "{text}");
    let text = screen(&sources.picture(true), &mut ui, (80, 10));
    assert!(text.contains("a.test @ one") && text.contains("a.test @ two"), "{text}");
}

#[test]
fn narrow_screens_have_what_they_have_room_for() {
    let picture = sources(&["a-server-with-a-long-name.example", "two"]).picture(false);
    let sizes = [(40, 10), (80, 24), (1, 1), (3, 2), (10, 4), (300, 100)];
    for size in sizes {
        let mut ui = Ui::default();
        for key in crate::ui::KEYS {
            ui.key(Key::Char(key));
            ui.has_help = false;
            let text = screen(&picture, &mut ui, size);
            assert!(!text.chars().any(|c| c.is_control() && c != '\n'), "{text:?}");
            if size.0 >= 40 {
                let name = crate::ui::name(ui.view);
                assert!(text.lines().nth(1).is_some_and(|tabs| tabs.contains(name)), "{text}");
            }
        }
        ui.key(Key::Char('?'));
        screen(&picture, &mut ui, size);
    }
    let mut ui = Ui { view: 3, ..Ui::default() };
    let text = screen(&picture, &mut ui, (40, 10));
    assert!(text.contains("u 10.0.0.1:80") && text.contains("unhealthy"), "{text}");
}

#[test]
fn a_head_stays_when_it_would_be_above_the_screen() {
    let picture = sources(&["x"]).picture(false);
    let mut ui = Ui::default();
    ui.key(Key::Char('4'));
    let text = screen(&picture, &mut ui, (80, 6));
    assert!(text.contains("Upstreams"), "{text}");
    let mut many = Picture::of(&[], false);
    many.tables[1] =
        (0..50).map(|n| crate::table::Row { name: format!("s{n}"), cells: Vec::new() }).collect();
    let mut ui = Ui { view: 1, ..Ui::default() };
    screen(&many, &mut ui, (80, 10));
    ui.key(Key::End);
    let text = screen(&many, &mut ui, (80, 10));
    assert!(text.lines().nth(2).is_some_and(|l| l.starts_with("Servers")), "{text}");
    assert!(text.contains("s49"), "{text}");
}

#[test]
fn what_is_looked_for_and_sorted_by() {
    let picture = sources(&["x"]).picture(false);
    let mut ui = Ui { view: 3, ..Ui::default() };
    let up = |text: &str| {
        let at = |name: &str| text.lines().position(|l| l.contains(name));
        (at("10.0.0.1:80"), at("10.0.0.2:80"))
    };
    ui.key(Key::Char('s'));
    let (first, second) = up(&screen(&picture, &mut ui, (80, 10)));
    assert!(second < first, "the worst state is first");
    ui.key(Key::Char('r'));
    let (first, second) = up(&screen(&picture, &mut ui, (80, 10)));
    assert!(first < second);
    for c in "/0.2".chars() {
        ui.key(Key::Char(c));
    }
    let text = screen(&picture, &mut ui, (80, 10));
    assert_eq!(up(&text).0, None);
    assert!(text.contains("10.0.0.2:80") && text.contains("/0.2_"), "{text}");
}

#[test]
fn visitors_are_shown_or_how_they_are_counted_is() {
    let sources_of_one = sources(&["x"]);
    let mut ui = Ui { view: crate::ui::VISITORS, ..Ui::default() };
    let text = screen(&sources_of_one.picture(false), &mut ui, (80, 24));
    assert!(text.contains("z: 5 requests") && text.contains("/\\x9bx"), "{text}");
    let text = screen(&Picture::default(), &mut ui, (80, 24));
    assert!(text.contains("yet") && !text.contains("analytics_zone"), "it may be counted: {text}");
    let none = Picture { is_told_visitors: true, ..Picture::default() };
    let text = screen(&none, &mut ui, (80, 24));
    assert!(text.contains("analytics_zone site;"), "{text}");
    let text = whole(&sources_of_one.picture(false), 80);
    assert!(text.contains("/\\x9bx") && text.contains("Upstreams"), "{text}");
    assert!(text.lines().all(|l| l.chars().count() <= 80 || l.contains("evil")), "{text}");
    let late = sources_of_one.late(0, Instant::now() + Duration::from_secs(9));
    assert!(late >= Duration::from_secs(9));
}

/// Columns are what rows have: a maximum is no mean, and what is not counted has no zeros.
#[test]
fn columns_say_what_they_show() {
    let mut all = sources(&["x"]);
    let panels = json!({
        "slowest": {"title": "Slowest", "rows": [{"name": "/s", "hits": 0, "bytes": 0, "longest_us": 248_000}]},
        "visitors": {"title": "Days", "rows": [{"name": "day", "hits": 3, "bytes": 2048, "visitors": 1}]},
        "requests": {"title": "Requests", "rows": [{"name": "/r", "hits": 3, "bytes": 2, "visitors": 1, "mean_us": 0}]}});
    let visitors = json!({"z": {"summary": {}, "panels": panels}}).to_string().into_bytes();
    let figures = Ok(tree(2_000_000, 200, "a.test").to_string().into_bytes());
    all.take(0, Told { at: Instant::now(), figures, visitors: Some(Ok(visitors)) });
    let mut ui = Ui { view: crate::ui::VISITORS, ..Ui::default() };
    let text = screen(&all.picture(false), &mut ui, (80, 40));
    let words = |start: &str| {
        let line = text.lines().map(|l| l.trim_matches(['"', ' '])).find(|l| l.starts_with(start));
        let line = line.unwrap_or_else(|| panic!("{start}: {text}"));
        line.split_ascii_whitespace().skip(1).map(str::to_string).collect::<Vec<_>>()
    };
    assert_eq!((words("Slowest"), words("/s")), (vec!["longest".into()], vec!["248ms".into()]));
    assert_eq!(words("Days"), ["hits", "visitors", "sent"]);
    assert_eq!(words("Requests")[3], "mean");
    assert_eq!(words("/r")[3], "<1ms");
}

/// Each server has a while of its own, and so no single one is that of what is added up: it is the mean.
#[test]
fn the_interval_is_that_of_the_figures() {
    let mut all = sources(&["x", "y"]);
    all.take(1, told(&tree(5_000_000, 450, "a.test")));
    let read = |all: &Sources| -> Value {
        serde_json::from_str(&crate::json::document(&all.picture(false))).unwrap()
    };
    let seen = read(&all);
    let of = |seen: &Value, n: usize| seen["sources"][n]["interval_seconds"].clone();
    assert_eq!((of(&seen, 0), of(&seen, 1)), (json!(1.0), json!(3.0)));
    assert_eq!(seen["interval_seconds"], json!(2.0));
    // One that is not there has no part in the figures.
    all.take(1, Told { at: Instant::now(), figures: Err("gone".into()), visitors: None });
    let seen = read(&all);
    assert_eq!((of(&seen, 1), &seen["interval_seconds"]), (Value::Null, &json!(1.0)));
}

struct Asked(Duration);

impl crate::sources::Ask for Asked {
    fn name(&self) -> String {
        format!("after {} s", self.0.as_secs())
    }

    fn figures(&mut self) -> Result<Vec<u8>, String> {
        std::thread::sleep(self.0);
        Ok(tree(1_000_000, 100, "a.test").to_string().into_bytes())
    }

    fn visitors(&mut self) -> Result<Vec<u8>, String> {
        Err("none".into())
    }
}

#[test]
fn one_that_is_silent_keeps_nobody_waiting() {
    let began = Instant::now();
    let askers: Vec<Box<dyn crate::sources::Ask>> =
        vec![Box::new(Asked(Duration::ZERO)), Box::new(Asked(Duration::from_secs(60)))];
    let seen = crate::sources::look(askers, Duration::from_millis(100), false);
    assert!(began.elapsed() < Duration::from_secs(20));
    let secs = seen.list[0].pair().unwrap().secs();
    assert!(seen.list[0].error.is_none() && secs.is_none_or(|s| s < 3.0), "{secs:?}");
    assert!(seen.list[1].error.as_deref().unwrap().contains("within 3 s"));
    assert!(!seen.are_lost());
}

#[test]
fn without_colours_there_are_none() {
    let picture = sources(&["x"]).picture(false);
    let (ui, history, paint) = (Ui::default(), History::default(), Paint::default());
    let shown = Shown { picture: &picture, history: &history, ui: &ui, paint: &paint };
    let mut buffer = Buffer::empty(Rect::new(0, 0, 80, 24));
    draw(&mut buffer, &shown, Some("late"));
    let plain = ratatui_core::style::Color::Reset;
    assert!(buffer.content().iter().all(|cell| cell.fg == plain && cell.bg == plain));
}
