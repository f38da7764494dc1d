//! `geoip2` and `geoip` ask databases that are made here.

use std::io::Write;
use weir_tests::mmdb::{self, english, Value};
use weir_tests::{expect_soon, run_cli, skip, Server, Setup, Signal};

fn is_weir() -> bool {
    run_cli(&["-v"], "").stderr.contains("(weir/")
}

fn country(code: &'static str, name: &'static str) -> Value {
    Value::Map(vec![(
        "country",
        Value::Map(vec![
            ("geoname_id", Value::Number(6_252_001)),
            ("iso_code", Value::Text(code)),
            ("is_in_european_union", Value::Bool(code == "DE")),
            ("names", english(name)),
        ]),
    )])
}

fn countries(epoch: u32, local: &'static str) -> Vec<u8> {
    mmdb::file(
        "GeoLite2-Country",
        epoch,
        &[
            ("127.0.0.0/8", country(local, "Here")),
            ("10.1.0.0/16", country("DE", "Germany")),
            ("2001:db8::/32", country("JP", "Japan")),
        ],
    )
}

fn cities() -> Vec<u8> {
    let record = Value::Map(vec![
        ("continent", Value::Map(vec![("code", Value::Text("NA"))])),
        (
            "country",
            Value::Map(vec![("iso_code", Value::Text("US")), ("names", english("United States"))]),
        ),
        (
            "subdivisions",
            Value::Array(vec![Value::Map(vec![
                ("iso_code", Value::Text("CA")),
                ("names", english("California")),
            ])]),
        ),
        ("city", Value::Map(vec![("names", english("San Francisco"))])),
        ("postal", Value::Map(vec![("code", Value::Text("94107"))])),
        (
            "location",
            Value::Map(vec![
                ("latitude", Value::Double(37.76968)),
                ("longitude", Value::Double(-122.39327)),
                ("metro_code", Value::Number(807)),
            ]),
        ),
    ]);
    mmdb::file("GeoLite2-City", 1, &[("10.0.0.0/8", record)])
}

fn organisations() -> Vec<u8> {
    let of = |number, name| {
        Value::Map(vec![
            ("autonomous_system_number", Value::Number(number)),
            ("autonomous_system_organization", Value::Text(name)),
        ])
    };
    mmdb::file(
        "GeoLite2-ASN",
        1,
        &[("10.0.0.0/8", of(15169, "GOOGLE")), ("11.0.0.0/8", of(1, "ONE"))],
    )
}

#[test]
fn paths_defaults_and_sources() {
    if !is_weir() {
        return skip("not nginx's own module");
    }
    let server = Setup::new(
        "events {} http { geoip2 country.mmdb {
                $code country iso_code;
                $of_arg source=$arg_ip country iso_code;
                $name \"default=No where\" source=$arg_ip country names en;
                $number source=$arg_ip country geoname_id;
                $is_eu source=$arg_ip country is_in_european_union;
                $map default=x source=$arg_ip country names;
                $epoch metadata build_epoch; $check metadata last_check; $change metadata last_change;
            }
            geoip2 %%DIR%%/city.mmdb { $lat source=$arg_ip location latitude;
                $region source=$arg_ip subdivisions 0 names en; $last source=$arg_ip subdivisions -1 iso_code; }
            server { listen 127.0.0.1:%%PORT_0%%;
            location / { return 200 \"$code|$of_arg|$name|$number|$is_eu|$map|$lat|$region|$last\"; }
            location /about { return 200 \"$epoch $check $change\"; } } }",
    )
    .file("country.mmdb", countries(1_700_000_000, "XK"))
    .file("city.mmdb", cities())
    .start();
    for (ip, expected) in [
        ("10.1.2.3", "XK|DE|Germany|6252001|1|x|37.76968|California|CA"),
        ("10.2.2.3", "XK||No where|||x|37.76968|California|CA"),
        ("2001:db8:5::1", "XK|JP|Japan|6252001|0|x|||"),
        ("::ffff:10.1.2.3", "XK|DE|Germany|6252001|1|x|37.76968|California|CA"),
        ("nonsense", "XK||No where|||x|||"),
        ("", "XK||No where|||x|||"),
    ] {
        assert_eq!(server.get(&format!("/?ip={ip}")).text(), expected, "{ip}");
    }
    let about = server.get("/about").text();
    let times: Vec<u64> = about.split(' ').map(|t| t.parse().unwrap()).collect();
    assert!(
        times[0] == 1_700_000_000 && times[1] > 1_700_000_000 && times[2] == times[1],
        "{about}"
    );
}

#[test]
fn proxies_are_believed_who_is_behind_them() {
    if !is_weir() {
        return skip("not built into nginx");
    }
    let server = Setup::new(
        "events {} http { geoip2 country.mmdb { $code2 default=- country iso_code; }
            geoip2_proxy 127.0.0.0/8; geoip2_proxy_recursive on; geoip2_proxy 10.2.0.0/16;
            geoip_country country.mmdb; geoip_proxy 127.0.0.0/8;
            server { listen 127.0.0.1:%%PORT_0%%; return 200 $code2/$geoip_country_code; } }",
    )
    .file("country.mmdb", countries(1, "XK"))
    .start();
    for (forwarded, expected) in [
        ("10.1.0.1", "DE/DE"),
        ("10.1.0.1, 10.2.0.1", "DE/"),
        ("2001:db8::1", "JP/JP"),
        ("x", "XK/XK"),
    ] {
        let response = server.get_with("/", &format!("X-Forwarded-For: {forwarded}\r\n"));
        assert_eq!(response.text(), expected, "{forwarded}");
    }
}

/// All of nginx's variables.
#[test]
fn the_variables_of_geoip() {
    if !is_weir() {
        return skip("not built into nginx");
    }
    let names = "country_code country_code3 country_name org city_continent_code city_country_code \
        city_country_code3 city_country_name region region_name city postal_code latitude longitude \
        dma_code area_code region_country_code region_region";
    let all: String = names.split_whitespace().map(|name| format!("$geoip_{name}|")).collect();
    let server = Setup::new(&format!(
        "events {{}} http {{ geoip_country country.mmdb; geoip_city city.mmdb utf8; geoip_org org.mmdb; geoip_region city.mmdb;
            geoip_proxy 127.0.0.1; geoip_proxy_recursive off;
            server {{ listen 127.0.0.1:%%PORT_0%%; return 200 \"{all}\"; }} }}"
    ))
    .file("country.mmdb", countries(1, "XK"))
    .file("city.mmdb", cities())
    .file("org.mmdb", organisations())
    .start();
    for (ip, expected) in [
        (
            "10.1.0.1",
            "DE|DEU|Germany|AS15169 GOOGLE|NA|US|USA|United States|CA|California|San Francisco|94107|\
             37.7697|-122.3933|807|0|US|CA|",
        ),
        ("11.0.0.1", "|||AS1 ONE|||||||||||||||"),
        ("12.0.0.1", "||||||||||||||||||"),
    ] {
        let response = server.get_with("/", &format!("X-Forwarded-For: {ip}\r\n"));
        assert_eq!(response.text(), expected, "{ip}");
    }
}

#[test]
fn in_stream() {
    if !is_weir() {
        return skip("not built into nginx");
    }
    let server = Setup::new(
        "events {} stream { geoip2 country.mmdb { $code country iso_code;
                $other default=none source=$server_port country iso_code; }
            geoip_country country.mmdb; geoip_city city.mmdb; geoip_org org.mmdb;
            server { listen 127.0.0.1:%%PORT_0%%;
                return $code,$other,$geoip_country_code3,$geoip_city,$geoip_org; } }",
    )
    .file("country.mmdb", countries(1, "AT"))
    .file("city.mmdb", cities())
    .file("org.mmdb", organisations())
    .start();
    let mut client = server.connect();
    assert_eq!(String::from_utf8_lossy(&client.read_to_end()), "AT,none,AUT,,");
}

/// Another file is seen, a broken one is not taken, and requests go on all the while.
#[test]
fn a_file_is_read_again() {
    if !is_weir() {
        return skip("not nginx's own module");
    }
    let mut server = Setup::new(
        "events {} error_log error.log info; http { geoip2 country.mmdb { auto_reload 1s; $code country iso_code;
                $epoch metadata build_epoch; }
            server { listen 127.0.0.1:%%PORT_0%%; return 200 $code-$epoch; } }",
    )
    .file("country.mmdb", countries(1, "AA"))
    .start();
    assert_eq!(server.get("/").text(), "AA-1");
    put(&server, &countries(2, "BB"));
    expect_soon("the new file is asked", || server.get("/").text() == "BB-2");
    server.expect_error("Reload MMDB");
    put(&server, b"no such database");
    let answers = || server.get("/").text();
    expect_soon("the broken file is told of", || {
        assert_eq!(answers(), "BB-2");
        server.error_log().contains("failed to reload - it is no MaxMind DB file")
    });
    assert_eq!(server.get("/").text(), "BB-2");
    put(&server, &countries(3, "CC"));
    expect_soon("the next one is taken", || server.get("/").text() == "CC-3");
    // By a reload, too.
    put(&server, &countries(4, "DD"));
    server.signal(Signal::Hup);
    expect_soon("the file of the reload", || server.get("/").text() == "DD-4");
    put(&server, b"");
    let conf = "events {} http { geoip2 country.mmdb { $code country iso_code; }
        server { listen 127.0.0.1:%%PORT_0%%; return 200 new; } }";
    server.replace_conf(&conf.replace("%%PORT_0%%", &server.port(0).to_string()));
    server.signal(Signal::Hup);
    server.expect_error("[emerg]");
    assert_eq!(server.get("/").text(), "DD-4", "the old one is kept, and asked");
}

/// As geoipupdate does: another file under the same name.
fn put(server: &Server, text: &[u8]) {
    let new = server.dir().join("new.mmdb");
    std::fs::File::create(&new).unwrap().write_all(text).unwrap();
    std::fs::rename(new, server.dir().join("country.mmdb")).unwrap();
}

#[test]
fn a_hostile_file_gives_nothing_and_harms_nobody() {
    if !is_weir() {
        return skip("not nginx's own module");
    }
    let whole = countries(1, "AA");
    let server = Setup::new(
        "events {} http { geoip2 country.mmdb { auto_reload 1s; $code default=- country iso_code; }
            server { listen 127.0.0.1:%%PORT_0%%; return 200 $code; } }",
    )
    .file("country.mmdb", {
        // Every pointer of the tree and every value is something else.
        let mut torn = whole.clone();
        let about = torn.windows(11).position(|w| w == b"MaxMind.com").unwrap() - 3;
        torn[..about].iter_mut().enumerate().for_each(|(n, b)| *b ^= (n * 37 + 11) as u8);
        torn
    })
    .start();
    for _ in 0..20 {
        assert_eq!(server.get("/").status, 200);
    }
}

#[test]
fn what_is_refused() {
    if !is_weir() {
        return skip("nginx has other words");
    }
    let setup = Setup::new("")
        .file("GeoIP.dat", "of the older kind")
        .file("a.mmdb", countries(1, "AA"))
        .file("empty.mmdb", "");
    let dir = setup.dir().display().to_string();
    for (conf, message) in [
        ("geoip_country D/GeoIP.dat;", "write \"D/GeoIP.mmdb\""),
        ("geoip_country D/none.dat;", "write \"D/none.mmdb\""),
        (
            "geoip_city D/none.mmdb;",
            "GeoIP_open(\"D/none.mmdb\") failed: open() failed (2: No such",
        ),
        ("geoip_org D/a.mmdb utf16;", "invalid parameter \"utf16\""),
        ("geoip_org D/a.mmdb; geoip_org D/a.mmdb;", "is duplicate"),
        ("geoip_proxy x;", "invalid network \"x\""),
        (
            "geoip2 D/empty.mmdb { }",
            "MMDB_open(\"D/empty.mmdb\") failed - it is no MaxMind DB file",
        ),
        ("geoip2 D/a.mmdb { } geoip2 D/a.mmdb { }", "Duplicate GeoIP2 mmdb - D/a.mmdb"),
        ("geoip2 D/a.mmdb { auto_reload; }", "invalid number of arguments for auto_reload"),
        ("geoip2 D/a.mmdb { auto_reload x; }", "invalid interval for auto_reload \"x\""),
        ("geoip2 D/a.mmdb { country iso_code; }", "invalid setting \"country\""),
        ("geoip2 D/a.mmdb { $a source=x country; }", "invalid source variable name \"x\""),
        ("geoip2 D/a.mmdb { $a default=x default=y z; }", "default has already been declared"),
        ("geoip2 D/a.mmdb { $a what=x z; }", "invalid setting \"what=x\" for \"$a\""),
        ("geoip2 D/a.mmdb { $a metadata when; }", "invalid metadata \"when\""),
        ("geoip2_proxy_recursive maybe;", "it must be \"on\" or \"off\""),
    ] {
        let conf = format!("events {{}} http {{ {} }}", conf.replace("D/", &format!("{dir}/")));
        let said = run_cli(&["-t"], &conf);
        let message = message.replace("D/", &format!("{dir}/"));
        assert!(said.code == 1 && said.stderr.contains(&message), "{conf}: {}", said.stderr);
    }
    let modules: String = ["http_geoip", "http_geoip2", "stream_geoip", "stream_geoip2"]
        .map(|name| format!("load_module modules/ngx_{name}_module.so; "))
        .concat();
    let said = run_cli(&["-t"], &format!("{modules} events {{}} http {{}}"));
    assert!(said.code == 0 && said.stderr.contains("(built in)"), "{}", said.stderr);
}
