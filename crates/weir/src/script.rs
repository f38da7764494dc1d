//! `weir lua`: a script with all of `ngx.*`, in a timer of a server that listens nowhere. The options are those of
//! OpenResty's `resty`; those that start its nginx under another program are refused.

use crate::cli::Action;
use crate::embedded;
use crate::load::{self, Paths};
use crate::sockets::Sockets;
use std::io::Write;
use weir_module::{Layout, Mode};
use weir_runtime::signals::{Signal, Waiter};
use weir_runtime::{listen, paths, title};

/// What runs the script; behind a table with what it was given.
const LOADER: &str = include_str!("script.lua");
/// As in `resty`.
const CONNECTIONS: u64 = 64;
const LEVELS: [&str; 8] = ["debug", "info", "notice", "warn", "error", "crit", "alert", "emerg"];
/// Where the system's name servers stand, and how many of them are asked.
const RESOLV_CONF: &str = "/etc/resolv.conf";
const SERVERS_MAX: usize = 6;

/// What the command line says.
#[derive(Default)]
pub struct Wanted {
    file: Option<Vec<u8>>,
    args: Vec<Vec<u8>>,
    codes: Vec<Vec<u8>>,
    dirs: Vec<Vec<u8>>,
    libs: Vec<Vec<u8>>,
    jit: Option<Vec<u8>>,
    dicts: Vec<Vec<u8>>,
    main: Vec<Vec<u8>>,
    http: Vec<Vec<u8>>,
    servers: Vec<Vec<u8>>,
    ipv6: bool,
    level: Option<Vec<u8>>,
    connections: Option<u64>,
    dumps: bool,
}

pub fn help() -> Result<(), String> {
    let text = format!(
        "\
Usage: {} lua [OPTION]... [-e CODE] [FILE [ARGUMENT]...]

Runs Lua with all that requests' code has (ngx.*), in a timer: it may wait, open sockets and begin threads.
ngx.say, ngx.print and print write to standard output; arg has the arguments, as for lua.

  -e CODE            : code, before that of the file; may be repeated
  -l LIB             : a module that is required first; may be repeated
  -I DIR             : where modules are looked for first; may be repeated
  -j off | v | dump  : LuaJIT's compiler off, or what it does told (v), or told at length (dump)
  -c NUMBER          : how many connections there may be ({CONNECTIONS})
  --shdict 'NAME SIZE' : a dictionary (lua_shared_dict); may be repeated
  --ns ADDRESS       : a name server, in place of those of {RESOLV_CONF}; may be repeated
  --resolve-ipv6     : names are looked up for IPv6 too
  --main-conf TEXT, --main-include FILE : directives outside of all blocks; may be repeated
  --http-conf TEXT, --http-include FILE : directives of the block http; may be repeated
  --errlog-level LEVEL : what of the error log is written to standard error (warn)
  --dump-nginx-conf  : the configuration that this comes to, and nothing is run
  -v, -V             : version, and what is built in

A link to this program with the name resty does the same without \"lua\".

Exit status: 0; 1 where the script fails, with its error on standard error; or what os.exit says
",
        Layout::here().name
    );
    std::io::stdout().write_all(text.as_bytes()).map_err(|e| format!("{e}\n"))
}

fn text(word: &[u8]) -> String {
    String::from_utf8_lossy(word).into_owned()
}

impl Wanted {
    /// The words behind the command's; what stands behind the file is the script's.
    pub fn read(words: &mut dyn Iterator<Item = Vec<u8>>) -> Result<Action, String> {
        let mut wanted = Wanted::default();
        while let Some(word) = words.next() {
            match word.as_slice() {
                b"--help" | b"-h" | b"-?" => return Ok(Action::LuaHelp),
                b"-v" => return Ok(Action::Version),
                b"-V" => return Ok(Action::FullVersion),
                b"--resolve-ipv6" => wanted.ipv6 = true,
                b"--dump-nginx-conf" => wanted.dumps = true,
                // There is no such block.
                b"--no-stream" => {}
                [b'-', _, ..] => wanted.option(&word, words)?,
                _ => {
                    wanted.file = Some(word);
                    wanted.args = words.collect();
                    break;
                }
            }
        }
        match wanted.file.is_none() && wanted.codes.is_empty() {
            true => Err("\"lua\" needs a file, or code with -e".into()),
            false => Ok(Action::Lua(wanted)),
        }
    }

    /// One that has a value: behind it, behind `=`, or, of a letter, glued to it.
    fn option(
        &mut self,
        word: &[u8],
        words: &mut dyn Iterator<Item = Vec<u8>>,
    ) -> Result<(), String> {
        let (name, glued) = match word {
            [b'-', b'-', ..] => match word.iter().position(|b| *b == b'=') {
                Some(at) => (&word[..at], Some(word[at + 1..].to_vec())),
                None => (word, None),
            },
            _ => (&word[..2], Some(word[2..].to_vec()).filter(|glued| !glued.is_empty())),
        };
        let known: &[&[u8]] = &[
            b"-e",
            b"-l",
            b"-I",
            b"-j",
            b"-c",
            b"--shdict",
            b"--ns",
            b"--main-conf",
            b"--main-include",
            b"--http-conf",
            b"--http-include",
            b"--errlog-level",
        ];
        if !known.contains(&name) {
            let name = text(name);
            return Err(match name.as_str() {
                "--gdb" | "--gdb-opts" | "--rr" | "--stap" | "--stap-opts" | "--valgrind"
                | "--valgrind-opts" | "--user-runner" => {
                    format!("option \"{name}\" is not taken: write the other program in front of \"weir lua\"")
                }
                "--nginx" | "--load-module" => {
                    format!("option \"{name}\" is not taken: there is one program, and all modules are in it")
                }
                _ => format!("invalid option: \"{name}\""),
            });
        }
        let value = glued.or_else(|| words.next());
        let value = value.ok_or_else(|| format!("option \"{}\" requires a value", text(name)))?;
        self.take(name, value)
    }

    fn take(&mut self, name: &[u8], value: Vec<u8>) -> Result<(), String> {
        let bad =
            |value: &[u8]| format!("invalid value of \"{}\": \"{}\"", text(name), text(value));
        match name {
            b"-e" => self.codes.push(value),
            b"-l" => self.libs.push(value),
            b"-I" => self.dirs.push(value),
            b"-j" if [&b"off"[..], b"v", b"dump"].contains(&value.as_slice()) => {
                self.jit = Some(value)
            }
            b"-c" => {
                let number = weir_base::units::parse_int(&value).filter(|n| *n > 0);
                self.connections = Some(number.ok_or_else(|| bad(&value))?);
            }
            b"--shdict" => self.dicts.push(value),
            b"--ns" => self.servers.push(value),
            b"--main-conf" => self.main.push(value),
            b"--http-conf" => self.http.push(value),
            b"--main-include" => self.main.push(include(&value)),
            b"--http-include" => self.http.push(include(&value)),
            b"--errlog-level" if LEVELS.iter().any(|l| l.as_bytes() == value) => {
                self.level = Some(value);
            }
            _ => return Err(bad(&value)),
        }
        Ok(())
    }

    /// The configuration that the script runs in.
    fn conf(&self) -> Vec<u8> {
        let mut out = b"daemon off; master_process off; worker_processes 1;\n".to_vec();
        let level = self.level.as_deref().unwrap_or(b"warn");
        put(&mut out, &[b"error_log stderr ", level, b";\n"]);
        self.main.iter().for_each(|line| put(&mut out, &[line, b"\n"]));
        let connections = self.connections.unwrap_or(CONNECTIONS).to_string();
        put(&mut out, &[b"events { worker_connections ", connections.as_bytes(), b"; }\nhttp {\n"]);
        put(&mut out, &[b"access_log off;\n"]);
        // A script that computes or blocks holds nobody.
        let has = |name: &[u8]| self.http.iter().any(|t| t.windows(name.len()).any(|w| w == name));
        if !has(b"lua_max_run_time") {
            put(&mut out, &[b"lua_max_run_time 0;\n"]);
        }
        if !has(b"lua_log_blocking_calls") {
            put(&mut out, &[b"lua_log_blocking_calls off;\n"]);
        }
        let servers = match self.servers.is_empty() {
            true => system_servers(),
            false => self.servers.clone(),
        };
        if !servers.is_empty() && !has(b"resolver ") {
            let ipv6: &[u8] = if self.ipv6 { b"" } else { b" ipv6=off" };
            put(&mut out, &[b"resolver ", &servers.join(&b' '), ipv6, b";\n"]);
        }
        self.dicts.iter().for_each(|dict| put(&mut out, &[b"lua_shared_dict ", dict, b";\n"]));
        self.http.iter().for_each(|line| put(&mut out, &[line, b"\n"]));
        put(&mut out, &[b"init_worker_by_lua_block {\nlocal given = { args = ", &list(&self.args)]);
        for (name, words) in
            [(&b"codes"[..], &self.codes), (b"libs", &self.libs), (b"dirs", &self.dirs)]
        {
            put(&mut out, &[b", ", name, b" = ", &list(words)]);
        }
        for (name, word) in [(&b"file"[..], &self.file), (b"jit", &self.jit)] {
            if let Some(word) = word {
                put(&mut out, &[b", ", name, b" = ", &quoted(word)]);
            }
        }
        put(&mut out, &[b" }\n", LOADER.as_bytes(), b"}\n}\n"]);
        out
    }
}

fn put(out: &mut Vec<u8>, parts: &[&[u8]]) {
    parts.iter().for_each(|part| out.extend_from_slice(part));
}

/// Relative names are meant from here.
fn include(file: &[u8]) -> Vec<u8> {
    let full = std::env::current_dir().unwrap_or_default().join(paths::path(file));
    let mut out = b"include ".to_vec();
    out.push(b'"');
    for byte in paths::bytes(&full) {
        if matches!(byte, b'"' | b'\\') {
            out.push(b'\\');
        }
        out.push(*byte);
    }
    out.extend_from_slice(b"\";");
    out
}

/// A string of Lua's: whatever is in it, a block of code ends where it should.
fn quoted(word: &[u8]) -> Vec<u8> {
    let mut out = vec![b'"'];
    for byte in word {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b' ' | b'.' | b'/' | b'_' => out.push(*byte),
            _ => out.extend_from_slice(format!("\\{byte:03}").as_bytes()),
        }
    }
    out.push(b'"');
    out
}

fn list(words: &[Vec<u8>]) -> Vec<u8> {
    let words: Vec<Vec<u8>> = words.iter().map(|word| quoted(word)).collect();
    [&b"{ "[..], &words.join(&b", "[..]), b" }"].concat()
}

/// The name servers of the system's.
fn system_servers() -> Vec<Vec<u8>> {
    let text = std::fs::read_to_string(RESOLV_CONF).unwrap_or_default();
    let address = |line: &str| {
        let mut words = line.split_ascii_whitespace();
        let ip = words.next().filter(|word| *word == "nameserver").and_then(|_| words.next())?;
        match ip.parse().ok()? {
            std::net::IpAddr::V4(ip) => Some(ip.to_string()),
            std::net::IpAddr::V6(ip) => Some(format!("[{ip}]")),
        }
    };
    text.lines().filter_map(address).take(SERVERS_MAX).map(String::into_bytes).collect()
}

/// Runs it. What ends by `os.exit` does not come back.
pub fn run(wanted: &Wanted) -> Result<(), String> {
    let conf = wanted.conf();
    if wanted.dumps {
        return std::io::stdout().write_all(&conf).map_err(|e| format!("{e}\n"));
    }
    embedded::put(conf);
    title::prepare();
    let error_log = Some("stderr".into());
    let prefix = std::env::temp_dir();
    let paths = Paths { prefix, conf: None, error_log, globals: Vec::new() };
    let loaded = load::load(&paths, Mode::Serve).map_err(|e| e.text)?;
    loaded.warnings.iter().for_each(|w| crate::say(&w.text));
    // Others end it at once, whatever it does.
    let waiter =
        Waiter::of(&[Signal::Quit, Signal::Chld]).map_err(|e| format!("signalfd(): {e}\n"))?;
    let sockets = Sockets::default().adopt(&loaded.generation, 1, Vec::new());
    let sockets = sockets.map_err(|failed| failed.join("\n") + "\n")?;
    listen::drop_inherited();
    crate::control::single(&paths, loaded, sockets, &waiter)
}
