//! What directives there are.

use super::{base32, lists, set_one, several, MiscLoc};
use weir_module::first::flag;
use weir_module::{set, Arity, Cf, Context, Row};
use weir_modules::rewrite::CONTEXTS;

const SETTINGS: Context = Context::HTTP.or(CONTEXTS);

/// Of a directive that makes a variable of one string, or of what it has.
const fn one(name: &'static str, doc: &'static str) -> Row {
    Row::new(name, CONTEXTS, Arity::ONE_TWO, "", doc, set_one)
}

const INVALID: &str = "What is invalid ends the request with 500, with a line in the error log.";

pub(super) const ROWS: &[Row] = &[
    Row::new(
        "set_if_empty",
        CONTEXTS,
        Arity::TWO,
        "",
        "Gives a variable a value if it has none.",
        several::set_if_empty,
    ),
    one("set_quote_sql_str", "Makes a MySQL string of a value, in quotes."),
    one("set_quote_pgsql_str", "Makes a PostgreSQL string of a value, in quotes."),
    one("set_quote_json_str", "Makes a JSON string of a value, in quotes; null of an empty one."),
    one("set_unescape_uri", "Decodes a part of a URI, a plus sign to a space."),
    one("set_escape_uri", "Encodes a value as a part of a URI."),
    Row::new(
        "set_hashed_upstream",
        CONTEXTS,
        Arity::THREE,
        "",
        "Chooses one of an upstream_list by the hash of a value.",
        several::set_hashed_upstream,
    ),
    Row::new(
        "upstream_list",
        Context::HS,
        Arity::TWO_MORE,
        "",
        "Names of upstreams, of which set_hashed_upstream chooses; 3:name counts three times.",
        lists::set_list,
    ),
    one("set_encode_base32", "Encodes a value in base32."),
    one("set_decode_base32", "Decodes base32; what is invalid gives an empty value."),
    Row::new(
        "set_base32_padding",
        SETTINGS,
        Arity::FLAG,
        "on",
        "Whether base32 is filled up with = to eights.",
        set!(Cf::get::<MiscLoc>, padding, flag),
    ),
    Row::new(
        "set_misc_base32_padding",
        SETTINGS,
        Arity::FLAG,
        "on",
        "The former name of set_base32_padding.",
        set!(Cf::get::<MiscLoc>, padding, flag),
    ),
    Row::new(
        "set_base32_alphabet",
        SETTINGS,
        Arity::ONE,
        "0123456789abcdefghijklmnopqrstuv",
        "The 32 characters that base32 is written in.",
        base32::set_alphabet,
    ),
    one("set_encode_base64", "Encodes a value in base64."),
    one("set_decode_base64", "Decodes base64.").note(INVALID),
    one("set_encode_base64url", "Encodes a value in the base64 that is safe in URLs."),
    one("set_decode_base64url", "Decodes the base64 that is safe in URLs.").note(INVALID),
    one("set_encode_hex", "Writes a value in hexadecimal digits."),
    one("set_decode_hex", "Reads hexadecimal digits.").note(INVALID),
    one("set_sha1", "The SHA-1 of a value, in hexadecimal digits."),
    one("set_md5", "The MD5 of a value, in hexadecimal digits."),
    Row::new(
        "set_hmac_sha1",
        CONTEXTS,
        Arity::THREE,
        "",
        "The HMAC-SHA1 of a value with a secret, in raw bytes.",
        several::set_hmac,
    ),
    Row::new(
        "set_hmac_sha256",
        CONTEXTS,
        Arity::THREE,
        "",
        "The HMAC-SHA256 of a value with a secret, in raw bytes.",
        several::set_hmac,
    ),
    Row::new(
        "set_random",
        CONTEXTS,
        Arity::THREE,
        "",
        "A random number from one to the other, both included.",
        several::set_random,
    )
    .note("It cannot be foretold; OpenResty's comes from rand()."),
    one("set_secure_random_alphanum", "So many random letters and digits, 64 at most."),
    one("set_secure_random_lcalpha", "So many random lower-case letters, 64 at most."),
    Row::new(
        "set_rotate",
        CONTEXTS,
        Arity::THREE,
        "",
        "Adds one to a variable, round and round from one number to another.",
        several::set_rotate,
    )
    .note("What it has come to in a location is one for all workers."),
    Row::new(
        "set_local_today",
        CONTEXTS,
        Arity::ONE,
        "",
        "Today's local date, as in 2026-11-22.",
        set_one,
    ),
    Row::new(
        "set_formatted_gmt_time",
        CONTEXTS,
        Arity::TWO,
        "",
        "The time in UTC, in strftime's words.",
        set_one,
    ),
    Row::new(
        "set_formatted_local_time",
        CONTEXTS,
        Arity::TWO,
        "",
        "The local time, in strftime's words.",
        set_one,
    ),
];
