//! Where things are when nobody says: chosen when the program is built, by environment variables
//! that are named like the options of nginx's `configure` (`--conf-path` is `WEIR_CONF_PATH`).
//!
//! A program that is called `nginx` looks where Debian's nginx looks, whatever it was built with:
//! there a configuration, its logs and the scripts around it are. Of the two layouts in use,
//! Debian's and that of nginx.org, Debian's keeps relative names and temporary files out of `/etc`
//! (its prefix is `/usr/share/nginx`, the other's `/etc/nginx`); configuration, logs and pid file are
//! the same in both. On Windows the name means nothing: a program's files are beside it.

use std::path::Path;
use std::sync::OnceLock;

/// Default paths and identity. Relative paths start at the prefix.
#[derive(Debug)]
pub struct Layout {
    /// The name that usage and process titles begin with.
    pub name: &'static str,
    pub prefix: &'static str,
    pub modules_path: &'static str,
    pub conf_path: &'static str,
    pub error_log_path: &'static str,
    pub http_log_path: &'static str,
    pub pid_path: &'static str,
    pub lock_path: &'static str,
    pub user: &'static str,
    pub group: &'static str,
    /// By what they are for: `client_body`, `proxy`.
    temp_paths: [(&'static str, &'static str); 5],
}

macro_rules! built {
    ($variable:literal, $default:literal) => {
        match option_env!($variable) {
            Some(told) => told,
            None => $default,
        }
    };
}

const WEIR: Layout = Layout {
    name: "weir",
    prefix: built!("WEIR_PREFIX", "/usr/local/weir"),
    modules_path: built!("WEIR_MODULES_PATH", "modules"),
    conf_path: built!("WEIR_CONF_PATH", "conf/nginx.conf"),
    error_log_path: built!("WEIR_ERROR_LOG_PATH", "logs/error.log"),
    http_log_path: built!("WEIR_HTTP_LOG_PATH", "logs/access.log"),
    pid_path: built!("WEIR_PID_PATH", "logs/nginx.pid"),
    lock_path: built!("WEIR_LOCK_PATH", "logs/nginx.lock"),
    user: built!("WEIR_USER", "nobody"),
    group: built!("WEIR_GROUP", ""),
    temp_paths: [
        ("client_body", built!("WEIR_HTTP_CLIENT_BODY_TEMP_PATH", "client_body_temp")),
        ("proxy", built!("WEIR_HTTP_PROXY_TEMP_PATH", "proxy_temp")),
        ("fastcgi", built!("WEIR_HTTP_FASTCGI_TEMP_PATH", "fastcgi_temp")),
        ("uwsgi", built!("WEIR_HTTP_UWSGI_TEMP_PATH", "uwsgi_temp")),
        ("scgi", built!("WEIR_HTTP_SCGI_TEMP_PATH", "scgi_temp")),
    ],
};

const NGINX: Layout = Layout {
    name: "nginx",
    prefix: "/usr/share/nginx",
    modules_path: "/usr/lib/nginx/modules",
    conf_path: "/etc/nginx/nginx.conf",
    error_log_path: "/var/log/nginx/error.log",
    http_log_path: "/var/log/nginx/access.log",
    pid_path: "/run/nginx.pid",
    lock_path: "/run/lock/nginx.lock",
    user: "www-data",
    group: "",
    temp_paths: [
        ("client_body", "/var/lib/nginx/body"),
        ("proxy", "/var/lib/nginx/proxy"),
        ("fastcgi", "/var/lib/nginx/fastcgi"),
        ("uwsgi", "/var/lib/nginx/uwsgi"),
        ("scgi", "/var/lib/nginx/scgi"),
    ],
};

static WEIR_BUILT: Layout = WEIR;
static NGINX_PACKAGED: Layout = NGINX;
static CHOSEN: OnceLock<&'static Layout> = OnceLock::new();

impl Layout {
    /// The one of this process: as it was built, unless [`Layout::choose`] was called before.
    pub fn here() -> &'static Layout {
        CHOSEN.get().copied().unwrap_or(&WEIR_BUILT)
    }

    /// Chooses by the name that the program was called by; only the first choice counts.
    pub fn choose(program: &Path) -> &'static Layout {
        CHOSEN.get_or_init(|| Layout::of(program))
    }

    fn of(program: &Path) -> &'static Layout {
        match program.file_stem() {
            Some(name) if name == "nginx" => &NGINX_PACKAGED,
            _ => &WEIR_BUILT,
        }
    }

    pub fn is_nginx(&self) -> bool {
        self.name == NGINX.name
    }

    /// The directory that `client_body_temp` or the like stands for, below the prefix.
    pub fn temp_path<'a>(&self, name: &'a Path) -> &'a Path {
        let what = name.to_string_lossy();
        let what = what.strip_suffix("_temp").unwrap_or(&what);
        let known = self.temp_paths.iter().find(|(n, _)| *n == what);
        known.map_or(name, |(_, path)| Path::new(*path))
    }

    /// As nginx's `-V` shows it, absolute.
    pub fn configure_arguments(&self) -> Vec<String> {
        let full = |path: &str| Path::new(self.prefix).join(path).display().to_string();
        let paths = [
            ("modules-path", self.modules_path),
            ("conf-path", self.conf_path),
            ("error-log-path", self.error_log_path),
            ("http-log-path", self.http_log_path),
            ("pid-path", self.pid_path),
            ("lock-path", self.lock_path),
        ];
        let mut out = vec![format!("--prefix={}", self.prefix)];
        out.extend(paths.iter().map(|(name, path)| format!("--{name}={}", full(path))));
        for (what, path) in &self.temp_paths {
            out.push(format!("--http-{}-temp-path={}", what.replace('_', "-"), full(path)));
        }
        out.push(format!("--user={}", self.user));
        if !self.group.is_empty() {
            out.push(format!("--group={}", self.group));
        }
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_decides() {
        for (program, name) in [
            ("/usr/sbin/nginx", "nginx"),
            ("nginx", "nginx"),
            ("nginx.exe", "nginx"),
            ("weir", "weir"),
            ("/opt/nginx/weir", "weir"),
            ("", "weir"),
        ] {
            assert_eq!(Layout::of(Path::new(program)).name, name, "{program}");
        }
    }

    #[test]
    fn temporary_directories() {
        let path = |name| NGINX.temp_path(Path::new(name)).display().to_string();
        assert_eq!(path("client_body_temp"), "/var/lib/nginx/body");
        assert_eq!(path("other_temp"), "other_temp");
    }

    #[test]
    fn configure_arguments_are_absolute() {
        let all = NGINX.configure_arguments();
        assert!(all.contains(&"--conf-path=/etc/nginx/nginx.conf".to_owned()), "{all:?}");
        let all = WEIR.configure_arguments();
        let relative = all.iter().filter(|a| a.contains("path") && !a.contains("=/"));
        assert_eq!(relative.count(), 0, "{all:?}");
    }
}
