//! map, geo and split_clients: values looked up.

use weir_tests::Setup;

#[test]
fn values_are_looked_up() {
    let server = Setup::new(
        r#"events {} http {
            map $arg_k $v {
                default def;
                "" empty;
                one 1;
                "two words" 2;
                ~^re(?<n>\d+)$ "re-$n";
                ~*^IRE ire;
                \default literal;
                from-var $arg_other;
                include %%DIR%%/more.map;
            }
            map $http_host $h { hostnames; default other; *.example.com star; .both.test both;
                www.* www; exact.example.com exact; }
            map "$arg_k:$arg_other" $both { "a:b" yes; volatile; }
            map $arg_k $none { x y; }
            geo $arg_ip $g { default far; 10.0.0.0/8 ten; 10.1.0.0/16 ten-one; 192.168.1.1 one; }
            server { listen 127.0.0.1:%%PORT_0%%; server_name _;
                location / { return 200 "$v"; }
                location /h { return 200 "$h"; }
                location /both { return 200 "[$both][$none]"; }
                location /g { return 200 "$g"; }
            } }"#,
    )
    .file("more.map", "included yes;\n")
    .start();
    for (path, text) in [
        ("/", "empty"),
        ("/?k=one", "1"),
        ("/?k=ONE", "1"),
        ("/?k=x", "def"),
        ("/?k=re12", "re-12"),
        ("/?k=ireland", "ire"),
        ("/?k=default", "literal"),
        ("/?k=from-var&other=thing", "thing"),
        ("/?k=included", "yes"),
        ("/both?k=a&other=b", "[yes][]"),
        ("/both?k=x", "[][y]"),
        ("/g?ip=10.2.3.4", "ten"),
        ("/g?ip=10.1.3.4", "ten-one"),
        ("/g?ip=192.168.1.1", "one"),
        ("/g?ip=192.168.1.2", "far"),
        ("/g?ip=nonsense", "far"),
    ] {
        assert_eq!(server.get(path).text(), text, "{path}");
    }
    for (host, text) in [
        ("a.example.com", "star"),
        ("exact.example.com", "exact"),
        ("both.test", "both"),
        ("a.both.test", "both"),
        ("www.anything", "www"),
        ("nothing", "other"),
    ] {
        assert_eq!(server.get_host(host, "/h").text(), text, "{host}");
    }
}

#[test]
fn clients_are_split_evenly_and_stably() {
    let server = Setup::new(
        "events {} http { split_clients $arg_u $s { 30% a; 20.5% b; * c; }
            server { listen 127.0.0.1:%%PORT_0%%; location / { return 200 $s; } } }",
    )
    .start();
    let mut client = server.connect();
    let mut counts = std::collections::BTreeMap::new();
    for n in 0..400 {
        *counts.entry(client.get(&format!("/?u={n}")).text()).or_insert(0) += 1;
    }
    assert!((80..160).contains(&counts["a"]), "{counts:?}");
    assert!((50..120).contains(&counts["b"]), "{counts:?}");
    let first = client.get("/?u=same").text();
    assert_eq!(client.get("/?u=same").text(), first);
}
