//! `ngx.re`: the options of its expressions, what they may take, and that no error is taken for "no match".

use crate::lua_mends::start;

/// What a handler begins with: `show` says values, tables among them, on a line.
const SHOW: &str = r##"local re, split = ngx.re, require("ngx.re").split
    local function show(...)
        local line = {}
        for i = 1, select("#", ...) do
            local v = select(i, ...)
            if type(v) == "table" then
                local parts = {}
                for k, of in pairs(v) do parts[#parts + 1] = tostring(k) .. "=" .. tostring(of) end
                table.sort(parts)
                v = "{" .. table.concat(parts, " ") .. "}"
            end
            line[i] = tostring(v)
        end
        ngx.say(table.concat(line, " "))
    end
"##;

/// What `code` says behind [`SHOW`].
fn said(http: &str, code: &str) -> String {
    let server = start(http, &format!("location / {{ content_by_lua_block {{ {SHOW} {code} }} }}"));
    server.get("/").text()
}

/// `d`: the longest of all ways, without groups, and what it cannot do is an error.
#[test]
fn lua_regex_option_d_goes_all_ways() {
    let said = said(
        "",
        r##"for _, o in ipairs { "d", "djo" } do
            show(re.match("aaab", "a|aa|aaa", o), re.match("foobar", "foo|foobar", o), re.match("aXbX", ".*?X", o))
            show(re.match("aab", "(?<n>a)(a)", o), re.find("xab", "(a)(b)", o))
            show(re.find("xab", "(a)(b)", o, nil, 1))
            show(re.gsub("aaab", "a+?", "<$0>", o)) show(re.gsub("aaab", "(a)", "<$1>", o)) show(re.sub("aaab", "(a)(a)", "<$2$0$1>", o))
            show(re.gsub("aab ab", "(a)+b", function(m) return "[" .. m[0] .. tostring(m[1]) .. "]" end, o))
            for m in re.gmatch("aab ab", "(a)+?b|a", o) do show(m) end
            show(split("a,b,,c", "(,+)", o), split("a,b,,c", ",|,,", o))
            local back = [[(a)\1]]
            show(re.match("aa", back, o)) show(re.find("aa", back, o)) show(re.gsub("aa", back, "x", o)) show(re.sub("aa", back, show, o))
            show(re.gmatch("aa", back, o)()) show(split("aa", back, o))
            show(re.match("ab", "a", o, { pos = 9 })) show(re.match("\195", "^.$", o .. "u"))
            show(re.match(("a"):rep(500) .. "!", "^(a|aa)+$", o)) show(re.match(("a"):rep(5000) .. "!", "^(a+)+$", o))
        end"##,
    );
    let once = "{0=aaa} {0=foobar} {0=aXbX}\n{0=aa} 2 3\nnil nil nth out of bound\n<aaa>b 1\n<><><>b 3\n<aa>ab 1\n\
        [aabnil] [abnil] 2\n{0=aab}\n{0=ab}\n{1=a 2=b 3=c} {1=a 2=b 3=c}\n\
        nil pcre_exec() failed: -42\nnil nil pcre_exec() failed: -42\nnil nil pcre_exec() failed: -42\n\
        nil nil pcre_exec() failed: -42\nnil pcre_exec() failed: -42\nnil pcre_exec() failed: -42\n\
        nil pcre_exec() failed: -33\nnil pcre_exec() failed: -3\nnil\nnil pcre_exec() failed: -43\n";
    assert_eq!(said, once.repeat(2));
}

/// Options are PCRE's own: `U` is UTF-8, `J` JavaScript's way, and neither is what Perl calls so.
#[test]
fn lua_regex_options_mean_what_they_do_for_openresty() {
    let said = said(
        "",
        r##"for _, o in ipairs { "", "jo" } do
            show(re.match("\195\169", "^.$", "U" .. o), re.match("aab", "a+", "U" .. o), re.match("ab", [[\u0061b]], "J" .. o))
            show(re.match("ab", "a(?<n>b)(?<n>c)?", "J" .. o))
            show(re.match("ab", "a(?<n>b)(?<m>c)?", "J" .. o), re.match("ab", "(a)|\\2(b)", o))
            show(re.match("AB\nab", "^a b # c\n$", "mx" .. o), re.match("a\nb", "a.b", "s" .. o), re.match("xa", "a", "a" .. o))
            show(re.match("AB", "(*UTF)b", "i" .. o), re.match("\233", "\233", o), re.match("ab", "a)b", o))
        end"##,
    );
    let once = "{0=\u{e9}} {0=aa} {0=ab}\n\
        nil pcre2_compile() failed: two named subpatterns have the same name (PCRE2_DUPNAMES not set) in \
        \"a(?<n>b)(?<n>c)?\" at \"c)?\"\n\
        {0=ab 1=b 2=false m=false n=b} {0=a 1=a 2=false}\n{0=ab} {0=a\nb} nil\n";
    let last = "pcre2_compile() failed: unmatched closing parenthesis in \"a)b\" at \")b\"\n";
    let whole = [once, "{0=B} {0=\u{fffd}} nil ", last].concat();
    assert_eq!(said, whole.repeat(2));
}

/// The limit is one of both, the interpreter and the JIT, however long the subject is.
#[test]
fn lua_regex_match_limit_holds_without_the_jit() {
    let code = r##"for _, o in ipairs { "", "j", "jo", "o" } do
        show(re.match(("a"):rep(40) .. "!", "^(a+)+$", o)) show(re.match(("a"):rep(40000) .. "!", "^(a|a)*?[cd]$", o))
        show(re.match("a!", "^(a+)+!$", o))
    end"##;
    let (gave_up, went) = ("nil pcre_exec() failed: -47\n", "{0=a! 1=a}\n");
    assert_eq!(
        said("lua_regex_match_limit 500;", code),
        [gave_up, gave_up, went].concat().repeat(4)
    );
    let usual = said("", code);
    assert!(usual.starts_with(gave_up), "{usual}");
}

/// A finalizer runs wherever memory is asked for, and may compile so many that others are let go of: those are compiled
/// again, and the answer is not "no match".
#[test]
fn lua_regex_that_was_let_go_of_is_compiled_again() {
    let said = said(
        "",
        r##"local wrong, runs = 0, 0
        local function finalize()
            runs = runs + 1
            for n = 1, 70 do re.gmatch("x", "x" .. n) end
        end
        local iterators = {}
        for n = 1, 100 do iterators[n] = re.gmatch("a" .. n, "[0-9]+") end
        for n, iterator in ipairs(iterators) do wrong = wrong + (iterator()[0] == tostring(n) and 0 or 1) end
        for n = 1, 1500 do
            getmetatable(newproxy(true)).__gc = finalize
            local m = re.match("abc" .. n, "(?<number>[0-9]+)")
            local from = re.find("abc" .. n, "[0-9]")
            local text = re.gsub("a1b22", "[0-9]+", "<$0>")
            local called = re.gsub("a1b22", "[0-9]+", function(m) return "<" .. m[0] .. ">" end)
            local parts = split("a1b22c" .. n, "[a-z]")
            if not m or m.number ~= tostring(n) or from ~= 4 or text ~= "a<1>b<22>" or called ~= text or #parts ~= 4 then
                wrong = wrong + 1
            end
        end
        show(wrong, runs > 0)"##,
    );
    assert_eq!(said, "0 true\n");
}

/// Of each separator `split` tells the first group, and an error within it is one.
#[test]
fn lua_regex_split_tells_the_first_group() {
    let said = said(
        "",
        r##"show(split("a1b2c", [[(\d)]]), split("a1xb2c", [[(\d)(x)?]]), split("a,b,c", "(,)", nil, nil, 2))
        show(split("abc", ""), split("a\195\169b", "", "d"), split(",", ","))
        show(split("a\195\169b", "", "u"))"##,
    );
    let expected = "{1=a 2=1 3=b 4=2 5=c} {1=a 2=1 3=b 4=2 5=c} {1=a 2=, 3=b,c}\n\
        {1=a 2=b 3=c} {1=a 2=\u{fffd} 3=\u{fffd} 4=b} {}\nnil pcre_exec() failed: -36\n";
    assert_eq!(said, expected);
}

/// `jit_stack_size` is memory of each worker: it has a bound, and what is beyond is refused.
#[test]
fn lua_regex_jit_stack_size_has_a_bound() {
    let said = said(
        "init_by_lua_block { require 'ngx.re'.opt('jit_stack_size', 8 * 1024 * 1024) }",
        r##"local opt = require "ngx.re".opt
        show(re.match(("/abcdef"):rep(5000), "^(?:a|b|/|[c-f])+$", "jo")[0] == ("/abcdef"):rep(5000))
        for _, size in ipairs { 1, 64 * 1024 * 1024, 0, 1e12, 0/0 } do show((pcall(opt, "jit_stack_size", size))) end
        show(re.find("ab", "b", "jo"))"##,
    );
    assert_eq!(said, "true\ntrue\ntrue\nfalse\nfalse\nfalse\n2 2\n");
}
