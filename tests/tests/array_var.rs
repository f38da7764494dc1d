//! array_split, array_map, array_map_op and array_join.

use weir_tests::{Server, Setup};

const CONF: &str = r#"events {} http { server { listen 127.0.0.1:%%PORT_0%%; error_log %%DIR%%/error.log;
    location /join { array_split ',' $arg_n to=$n; array_join '+' $n; return 200 "[$n]"; }
    location /max { array_split ',' $arg_n $arg_m to=$n; array_join '+' $n; return 200 "[$n]"; }
    location /each { array_split '' $arg_n to=$n; array_join '+' $n; return 200 "[$n]"; }
    location /each-max { array_split '' $arg_n 2 to=$n; array_join '' $n to=$r; array_join '+' $n; return 200 "$n$r"; }
    location /long { array_split '->' $arg_n to=$n; array_join '(+)' $n to=$r; array_join '-' $n to=$q; return 200 "$r $q"; }
    location /map { array_split ',' $arg_n to=$n; array_map '[$array_it$uri]' $n to=$m; array_map '' $n;
        array_join '+' $n; array_join '+' $m; return 200 "$m $n $array_it"; }
    location /op { array_split ',' $arg_n to=$n; array_map_op set_unescape_uri $n; array_map_op set_quote_sql_str $n to=$q;
        array_join '+' $q to=$r; array_join '+' $n to=$s; return 200 "$r $s"; }
    location /op-fails { array_split ',' $arg_n to=$n; array_map_op set_decode_hex $n; array_join ',' $n; return 200 $n; }
    location /none { set $n text; array_join '+' $n; return 200 $n; }
    location /grow { array_split '' $arg_n to=$n; array_map "$array_it$arg_n$arg_n" $n; array_map "$array_it$array_it$array_it$array_it" $n;
        array_map "$array_it$array_it$array_it$array_it" $n; array_join '' $n; return 200 $n; }
} }"#;

fn start() -> Server {
    Setup::new(CONF).start()
}

#[test]
fn lists_are_split_mapped_and_joined() {
    let server = start();
    for (path, expected) in [
        ("/join?n=Bob,Marry,John", "[Bob+Marry+John]"),
        ("/join?n=one", "[one]"),
        ("/join?n=,,,", "[+++]"),
        ("/join", "[]"),
        ("/max?n=a,b,c&m=2", "[a+b,c]"),
        ("/max?n=a,b,c&m=0", "[a+b+c]"),
        ("/each?n=Bob", "[B+o+b]"),
        ("/each", "[]"),
        ("/each-max?n=Bob", "B+obBob"),
        ("/long?n=a->b->c", "a(+)b(+)c a-b-c"),
        ("/map?n=a,,c", "[a/map]+[/map]+[c/map] ++ "),
        ("/op?n=b%27,%5C", r"'b\''+'\\' b'+\"),
        ("/op-fails?n=61,62", "a,b"),
    ] {
        assert_eq!(server.get(path).text(), expected, "{path}");
    }
}

#[test]
fn what_is_no_list_ends_in_500() {
    let server = start();
    for path in ["/none", "/op-fails?n=61,6", "/max?n=a&m=x"] {
        assert_eq!(server.get(path).status, 500, "{path}");
    }
    server.expect_error("array_join: invalid array variable value in the 2nd argument");
}

/// nginx's grows until its memory is full.
#[test]
fn lists_do_not_grow_without_end() {
    let server = start();
    let answer = server.get(&format!("/grow?n={}", "x".repeat(1000)));
    if answer.status == 200 {
        return weir_tests::skip("nginx has no limit");
    }
    assert_eq!(answer.status, 500);
    server.expect_error("array_map: the list is too large");
}
