//! `dashboard`'s page in a browser: what it shows, what can be done with it, and that it asks nobody else.

use std::time::{Duration, Instant};
use weir_tests::{Browser, Pipe, Server, Setup};

const CONF: &str = "worker_processes 2; events {} http {
    upstream back { zone back 64k; server 127.0.0.1:%%PORT_1%%; server 127.0.0.1:%%PORT_2%%; server 127.0.0.1:%%PORT_3%% down; }
    server { listen 127.0.0.1:%%PORT_0%%; server_name front;
        location / { status_zone all; proxy_pass http://back; }
        location /live/ { dashboard api=/api/; }
        location /api/ { api write=on; allow 127.0.0.1; deny all; } }
    server { listen 127.0.0.1:%%PORT_1%%; listen 127.0.0.1:%%PORT_2%%; server_name shop;
        location / { return 200 ok; }
        location /broken { return 503; } } }";

/// The page of a server, once it is live.
fn open(server: &Server) -> Option<Browser> {
    let mut page = Browser::start()?;
    page.open(&format!("http://127.0.0.1:{}/live/", server.port(0)));
    page.until("document.querySelector('.state')?.textContent === 'live'");
    Some(page)
}

/// Nothing went wrong, and nobody but the server was asked.
#[track_caller]
fn is_well(page: &mut Browser, server: &Server) {
    assert_eq!(page.complaints(), Vec::<String>::new());
    let own = format!("http://127.0.0.1:{}/", server.port(0));
    let others = page.asked();
    let others: Vec<_> =
        others.iter().filter(|url| !url.starts_with(&own) && !url.starts_with("data:")).collect();
    assert_eq!(others, Vec::<&String>::new());
}

/// The text of a cell: of the row that has `row` in its first cells, under the head `column`.
fn cell(row: &str, column: &str) -> String {
    format!(
        "(() => {{ for (const t of document.querySelectorAll('table')) {{ \
         const n = [...t.querySelectorAll('th')].findIndex(h => h.innerText.trim() === {column:?}); \
         const r = [...t.querySelectorAll('tbody tr')].find(r => r.innerText.includes({row:?})); \
         if (n >= 0 && r) return r.children[n].innerText.trim(); }} return ''; }})()"
    )
}

#[test]
fn figures_are_those_of_the_api() {
    let server = Server::start(CONF);
    let Some(mut page) = open(&server) else { return };
    for _ in 0..7 {
        assert_eq!(server.get("/x").status, 200);
    }
    assert_eq!(server.get("/broken").status, 503);
    page.click("a[href='#servers']");
    page.until(&format!("{} === '8'", cell("shop", "Requests")));
    page.until(&format!("{} === '8'", cell("all", "Requests")));
    let told = server.get("/api/9/http/server_zones/shop").text();
    assert!(told.contains("\"requests\":8,"), "{told}");
    page.click("a[href='#upstreams']");
    let peers = format!("127.0.0.1:{}", server.port(3));
    page.until(&format!("{} === 'down'", cell(&peers, "State")));
    is_well(&mut page, &server);
}

#[test]
fn tabs_are_reached_by_clicks_and_by_keys() {
    let server = Server::start(CONF);
    let Some(mut page) = open(&server) else { return };
    page.until("document.querySelectorAll('.plot canvas').length >= 4");
    let tabs = page.run("[...document.querySelectorAll('nav a')].map(a => a.getAttribute('href'))");
    let tabs = tabs.as_array().cloned().unwrap_or_default();
    assert!(tabs.len() >= 6, "{tabs:?}");
    for (n, tab) in tabs.iter().enumerate() {
        let current = format!(
            "document.querySelector(\"nav a[aria-current]\")?.getAttribute('href') === {tab}"
        );
        page.click(&format!("nav a[href={tab}]"));
        page.until(&current);
        page.until("document.querySelector('main').innerText.length > 20");
        page.key("1");
        page.until("location.hash === '#overview'");
        page.key(&(n + 1).to_string());
        page.until(&current);
    }
    // What is written into a field is no key.
    page.click("a[href='#servers']");
    // The field of the tab before is not the one.
    page.until(
        "document.querySelector(\"nav a[aria-current]\")?.getAttribute('href') === '#servers'",
    );
    page.until("document.getElementById('search')");
    page.key("/");
    page.until("document.activeElement.id === 'search'");
    page.key("1");
    page.until("document.getElementById('search').value === '1' && location.hash === '#servers'");
    is_well(&mut page, &server);
}

#[test]
fn a_search_leaves_what_is_looked_for() {
    let server = Server::start(CONF);
    let Some(mut page) = open(&server) else { return };
    page.click("a[href='#upstreams']");
    page.until("document.querySelectorAll('tbody tr').length === 3");
    page.key("/");
    page.write(&format!(":{}", server.port(2)));
    page.until("document.querySelectorAll('tbody tr').length === 1");
    is_well(&mut page, &server);
}

#[test]
fn a_page_that_pauses_stands_still() {
    let server = Server::start(CONF);
    let Some(mut page) = open(&server) else { return };
    page.click("a[href='#servers']");
    page.until(&format!("{} === '0'", cell("shop", "Requests")));
    page.key("p");
    page.until("document.querySelector('.state').textContent === 'paused'");
    server.get("/x");
    // What was sent meanwhile has come when a second viewer has seen it.
    let mut viewer = server.connect();
    viewer.send_get("/live/events");
    for _ in 0..3 {
        viewer.read_until(b"event: tick\n");
    }
    assert_eq!(page.text(&cell("shop", "Requests")), "0");
    page.key("p");
    page.until(&format!("{} === '1'", cell("shop", "Requests")));
    is_well(&mut page, &server);
}

#[test]
fn colours_are_the_systems_until_others_are_chosen() {
    let server = Server::start(CONF);
    let Some(mut page) = open(&server) else { return };
    let back = "getComputedStyle(document.body).backgroundColor";
    page.prefers("light");
    page.open(&format!("http://127.0.0.1:{}/live/", server.port(0)));
    page.until("document.documentElement.dataset.theme === 'light' && document.querySelector('.state').textContent === 'live'");
    let light = page.text(back);
    page.click("button[aria-label='Change to dark colours']");
    page.until("document.documentElement.dataset.theme === 'dark'");
    assert_ne!(page.text(back), light);
    page.open(&format!("http://127.0.0.1:{}/live/", server.port(0)));
    page.until("document.documentElement.dataset.theme === 'dark'");
    is_well(&mut page, &server);
}

#[test]
fn a_phones_width_is_enough() {
    let server = Server::start(CONF);
    let Some(mut page) = open(&server) else { return };
    page.size(360, 640);
    let tabs = page.run("[...document.querySelectorAll('nav a')].map(a => a.getAttribute('href'))");
    for tab in tabs.as_array().cloned().unwrap_or_default() {
        page.click(&format!("nav a[href={tab}]"));
        page.until("document.querySelector('main').innerText.length > 20");
        page.until("document.documentElement.scrollWidth <= innerWidth");
    }
    is_well(&mut page, &server);
}

#[test]
fn servers_are_drained_disabled_and_enabled() {
    let server = Server::start(CONF);
    let Some(mut page) = open(&server) else { return };
    page.click("a[href='#upstreams']");
    let peer = format!("127.0.0.1:{}", server.port(1));
    let state = cell(&peer, "State");
    let button = |verb: &str| format!("button[aria-label='{verb} {peer} of back']");
    let told = |what: &str| {
        let servers = server.get("/api/9/http/upstreams/back/servers/0").text();
        assert!(servers.contains(what), "{what} in {servers}");
    };
    page.until(&format!("{state} === 'up'"));
    page.click(&button("Drain"));
    page.until("document.querySelector('dialog[open]')");
    page.key("Escape");
    page.until("!document.querySelector('dialog[open]')");
    told("\"down\":false}");
    page.click(&button("Drain"));
    page.click("#do-it");
    page.until(&format!("{state} === 'draining'"));
    told("\"drain\":true");
    page.click(&button("Disable"));
    page.click("#do-it");
    page.until(&format!("{state} === 'down'"));
    told("\"down\":true");
    page.click(&button("Enable"));
    page.until(&format!("{state} === 'up'"));
    told("\"down\":false}");
    is_well(&mut page, &server);
}

#[test]
fn what_the_api_refuses_is_said_and_nobody_else_may_ask() {
    let conf = CONF.replace("allow 127.0.0.1; deny all;", "limit_except GET { deny all; }");
    let server = Server::start(&conf);
    let Some(mut page) = open(&server) else { return };
    page.click("a[href='#upstreams']");
    let peer = format!("127.0.0.1:{}", server.port(1));
    page.click(&format!("button[aria-label='Disable {peer} of back']"));
    page.click("#do-it");
    page.until("document.querySelector('dialog[open] [role=alert]')?.innerText.includes('403')");
    assert_eq!(page.text(&cell(&peer, "State")), "up");
}

/// From a bookmark or a runbook, with name and password in the address.
#[test]
fn an_address_with_a_password_has_all_of_the_page() {
    let guard = "auth_basic x; auth_basic_user_file %%DIR%%/users;";
    let conf = CONF
        .replace("allow 127.0.0.1; deny all;", guard)
        .replace("dashboard ", &format!("{guard} dashboard "));
    let server = Setup::new(&conf).file("users", "op:{PLAIN}secret\n").start();
    let Some(mut page) = Browser::start() else { return };
    page.open(&format!("http://op:secret@127.0.0.1:{}/live/", server.port(0)));
    page.until("document.querySelector('.state')?.textContent === 'live'");
    page.click("a[href='#upstreams']");
    page.until(&format!("document.title === 'Upstreams · 127.0.0.1:{} · Weir'", server.port(0)));
    let peer = format!("127.0.0.1:{}", server.port(1));
    page.click(&format!("button[aria-label='Disable {peer} of back']"));
    page.click("#do-it");
    page.until(&format!("{} === 'down'", cell(&peer, "State")));
}

#[test]
fn a_page_without_an_api_that_writes_changes_nothing() {
    let conf = CONF.replace("api write=on;", "api;");
    let server = Server::start(&conf);
    let Some(mut page) = open(&server) else { return };
    page.click("a[href='#upstreams']");
    page.until("document.querySelectorAll('tbody tr').length === 3");
    page.until("document.querySelector('main').innerText.includes('api write=on;')");
    assert_eq!(page.text("document.querySelectorAll('td button').length"), "0");
    is_well(&mut page, &server);
}

#[test]
fn plots_are_zoomed_together_and_whole_again() {
    let server = Server::start(CONF);
    let Some(mut page) = open(&server) else { return };
    // Some seconds must have been noted for there to be something to zoom.
    page.until("document.querySelectorAll('.plot canvas').length >= 4");
    page.until("window.performance.now() > 4000");
    page.drag(".plot .u-over", 0.3, 0.8);
    page.until("document.getElementById('see-all')");
    page.click("#see-all");
    page.until("!document.getElementById('see-all')");
    page.drag(".plot .u-over", 0.8, 0.2);
    page.until("document.getElementById('see-all')");
    page.double_click(".plot .u-over");
    page.until("!document.getElementById('see-all')");
    is_well(&mut page, &server);
}

#[test]
fn problems_are_shown_as_they_happen_without_secrets() {
    let conf = CONF.replace("dashboard api", "dashboard slow=100ms api").replace(
        "location /broken",
        "location /late { limit_rate 1k; return 200 %%LONG%%; } location /broken",
    );
    let server = weir_tests::Setup::new(&conf).set("LONG", "x".repeat(3000)).start();
    let Some(mut page) = open(&server) else { return };
    page.until("document.querySelector('.none.well')");
    assert_eq!(server.get("/broken?token=secret").status, 503);
    assert_eq!(server.get("/late").status, 200);
    page.click("a[href='#problems']");
    page.until("document.querySelector('.happening.failed')?.innerText.includes('/broken')");
    page.until("document.querySelector('.happening.slow')?.innerText.includes('/late')");
    let shown = page.text("document.body.innerText");
    assert!(!shown.contains("secret"), "{shown}");
    // A search and a kind leave what is of it.
    page.key("/");
    page.write("nothing like it");
    page.until("document.querySelectorAll('.happening').length === 0");
    is_well(&mut page, &server);
}

#[test]
fn the_system_and_its_workers_are_shown() {
    let server = Server::start(CONF);
    let Some(mut page) = open(&server) else { return };
    page.click("a[href='#system']");
    page.until("document.querySelectorAll('[aria-label=Workers] tbody tr').length === 2");
    page.until("document.querySelector('main').innerText.includes('somaxconn')");
    page.until("document.querySelector('main').innerText.includes('last loaded')");
    is_well(&mut page, &server);
}

#[test]
fn many_servers_take_no_more_of_the_page_than_is_seen() {
    let zones: String = (0..400)
        .map(|n| format!("location /z{n} {{ status_zone zone{n:03}; return 200 ok; }} "))
        .collect();
    let conf = CONF.replace("location /broken", &format!("{zones} location /broken"));
    let server = Server::start(&conf);
    let Some(mut page) = open(&server) else { return };
    page.click("a[href='#servers']");
    page.until("document.querySelector('.many')");
    let made = page.run("document.querySelectorAll('.many tbody tr').length");
    assert!(made.as_u64().is_some_and(|n| (10..100).contains(&n)), "{made}");
    page.click(".many th:first-child button");
    page.until("document.querySelector('.many tbody').innerText.includes('zone000')");
    page.run("document.querySelector('.many').scrollTop = 1e6");
    page.until("document.querySelector('.many tbody').innerText.includes('zone399')");
    assert!(page.text("document.querySelector('.many tbody').innerText").len() < 10_000);
    is_well(&mut page, &server);
}

const SHIPPING: &str = "worker_processes 1; pid the.pid; events {}
ship away { to opensearch http://127.0.0.1:%%PORT_1%%; queue %%DIR%%/away size=1m;
    batch linger=10ms; retry first=20ms most=50ms; }
ship lines { to syslog udp://127.0.0.1:%%PORT_2%%; queue %%DIR%%/lines size=64m; batch linger=10ms; }
http { server { listen 127.0.0.1:%%PORT_0%%;
    location / { ship_access away; ship_access lines; return 200 ok; }
    location /live/ { dashboard; }
    location /api/ { api; } } }";

#[test]
fn receivers_of_events_are_shown_as_the_api_has_them() {
    let server = Server::start(SHIPPING);
    let Some(mut page) = open(&server) else { return };
    for _ in 0..3 {
        assert_eq!(server.get("/x").status, 200);
    }
    page.click("a[href='#shipping']");
    page.until(&format!("{} === '3'", cell("away", "Waiting")));
    page.until(&format!("{}.startsWith('fails for ')", cell("away", "State")));
    page.until(&format!("{}.endsWith(' of 1.00 MB')", cell("away", "Queue")));
    page.until("document.querySelector('.happenings')?.innerText.includes('failing since')");
    let told = server.get("/api/9/ship/away").text();
    for part in
        ["\"queued_events\":3,", "\"max_bytes\":1048576,", "\"last_error\":", "\"failing_since\":"]
    {
        assert!(told.contains(part), "{part} in {told}");
    }
    assert!(!told.contains("\"failing_for\":0,"), "{told}");
    // The other one's state is its own.
    page.until(&format!("{} === '3'", cell("lines", "Sent")));
    page.until(&format!("{} === 'well'", cell("lines", "State")));
    let told = server.get("/api/9/ship/lines").text();
    assert!(told.contains("\"queued_events\":0,") && told.contains("\"failing_for\":0,"), "{told}");
    is_well(&mut page, &server);
}

#[test]
fn who_comes_and_what_for() {
    let server = Server::start(
        "events {} http { analytics_zone all; server { listen 127.0.0.1:%%PORT_0%%;
            location / { analytics all; return 200 ok; }
            location /live/ { dashboard; } } }",
    );
    let Some(mut page) = open(&server) else { return };
    for url in ["/often", "/often", "/often", "/seldom"] {
        server.get(url);
    }
    page.click("a[href='#visitors']");
    page.until("document.querySelector('section[aria-label=\"Visitors all\"] .tile')");
    // The bar is that of the panel's busiest row; it looks again by itself.
    let row = |name: &str, hits: &str, share: &str| {
        format!(
            "[...document.querySelectorAll('.card li')].some(li => li.innerText.includes('{name}') \
             && li.querySelector('b').innerText === '{hits}' && li.querySelector('i').style.width.startsWith('{share}'))"
        )
    };
    page.until(&row("/often", "3", "100%"));
    page.until(&row("/seldom", "1", "33.3"));
    server.get("/often");
    page.until(&row("/often", "4", "100%"));
    page.until(&row("/seldom", "1", "25%"));
    is_well(&mut page, &server);
}

/// Each panel shows what it is about: visitors, times, bytes, all hours of the day.
#[test]
fn panels_show_what_they_are_about() {
    let server = Setup::new(
        "events {} http { analytics_zone all; server { listen 127.0.0.1:%%PORT_0%%;
            location / { analytics all; root %%DIR%%; limit_rate 10k; }
            location /live/ { dashboard; } } }",
    )
    .file("large", "x".repeat(12_000))
    .start();
    let Some(mut page) = open(&server) else { return };
    for _ in 0..3 {
        assert_eq!(server.get("/large").status, 200);
    }
    page.click("a[href='#visitors']");
    let shown = |panel: &str| {
        format!("(document.querySelector('#panel-{panel} li b') ?? {{ innerText: '' }}).innerText")
    };
    page.until(&format!("{} === '1'", shown("visitors")));
    page.until(&format!("{}.endsWith(' KB')", shown("heaviest")));
    page.until(&format!("/ (µs|ms|s)$/.test({})", shown("slowest")));
    page.until("document.querySelectorAll('#panel-hours li').length === 24");
    page.until(
        "[...document.querySelectorAll('#panel-hours li i')].filter(i => i.style.height === '100%').length >= 1",
    );
    is_well(&mut page, &server);
}

/// Where the row of pages is wider than the window.
#[test]
fn a_phone_shows_which_page_it_is() {
    let server = Server::start(CONF);
    let Some(mut page) = open(&server) else { return };
    page.size(390, 800);
    let inside = "(() => { const a = document.querySelector('nav a[aria-current]').getBoundingClientRect(); \
        return a.left >= 0 && a.right <= innerWidth; })()";
    page.key("6");
    page.until("document.querySelector('nav a[aria-current]').title === 'Key 6'");
    page.until(inside);
    page.key("1");
    page.until("document.querySelector('nav a[aria-current]').title === 'Key 1'");
    page.until(inside);
    is_well(&mut page, &server);
}

#[test]
fn a_worker_that_is_stuck_is_said_to_be() {
    let setup = Setup::new(
        "worker_processes 4; events {} http { server { listen 127.0.0.1:%%PORT_0%% reuseport;
            location / { return 200 ok; }
            location /live/ { dashboard; }
            location /secret { auth_basic s; auth_basic_user_file %%DIR%%/pipe; } } }",
    );
    let mut pipe = Pipe::make(setup.dir().join("pipe"));
    let server = setup.start();
    let Some(mut page) = open(&server) else { return };
    page.click("a[href='#system']");
    page.until("document.querySelector('main').innerText.includes('All workers come back')");
    let says = "document.querySelector('main').innerText.includes('does not come back')";
    // A worker that the page itself hangs on tells nothing; the next connection may be another's.
    let is_said = (0..20).any(|_| {
        let mut stuck = server.connect();
        stuck.send(b"GET /secret HTTP/1.1\r\nHost: localhost\r\nAuthorization: Basic YTpi\r\n\r\n");
        // Its worker reads the list of users.
        pipe.open();
        let until = Instant::now() + Duration::from_secs(5);
        let mut is_said = false;
        while !is_said && Instant::now() < until {
            is_said = page.run(says) == true;
        }
        if is_said {
            page.until("[...document.querySelectorAll('tbody tr')].filter(r => r.innerText.includes('stuck for')).length === 1");
        }
        pipe.close();
        assert_eq!(stuck.response().status, 401);
        is_said
    });
    assert!(is_said, "nobody said so");
    page.until("document.querySelector('main').innerText.includes('All workers come back')");
}
