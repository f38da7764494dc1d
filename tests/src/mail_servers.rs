//! Dovecot and Postfix, unpacked or installed, each with a configuration and a directory of its own.

use std::ffi::OsString;
use std::os::unix::fs::{chown, symlink, PermissionsExt};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

use crate::tools::{self, Running, Tool};
use crate::{expect_soon, free_port, listens_on, skip, Setup};

/// Where Debian has nobody.
const NOBODY: u32 = 65534;

fn effective(what: &str) -> u32 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix(what)).unwrap_or_default();
    line.split_whitespace().nth(1).and_then(|id| id.parse().ok()).unwrap_or(NOBODY)
}

/// The name that has this number in `/etc/passwd` or `/etc/group`.
fn name_of(file: &str, id: u32) -> Option<String> {
    let id = id.to_string();
    entry(file, |fields| fields.get(2) == Some(&&id[..])).map(|fields| fields[0].clone())
}

/// The number of this name there.
fn id_of(file: &str, name: &str) -> Option<u32> {
    entry(file, |fields| fields[0] == name).and_then(|fields| fields.get(2)?.parse().ok())
}

fn entry(file: &str, is_it: impl Fn(&[&str]) -> bool) -> Option<Vec<String>> {
    let text = std::fs::read_to_string(file).unwrap_or_default();
    let fields = text.lines().map(|line| line.split(':').collect::<Vec<_>>()).find(|f| is_it(f))?;
    Some(fields.iter().map(ToString::to_string).collect())
}

/// Whether everybody may go to this file.
fn is_open(path: &Path) -> bool {
    path.ancestors()
        .all(|p| std::fs::metadata(p).is_ok_and(|m| m.permissions().mode() & 0o005 == 0o005))
}

fn give(path: &Path, uid: u32, gid: u32) {
    std::fs::create_dir_all(path).unwrap();
    chown(path, Some(uid), Some(gid)).unwrap();
}

/// Dovecot with the mail of one user, whoever it is, whose password is `secret`. What listens to
/// the PROXY protocol is apart.
pub struct Dovecot {
    pub imap: u16,
    pub pop3: u16,
    pub imap_proxied: u16,
    setup: Setup,
    /// Where its modules are looked for.
    link: Option<PathBuf>,
    running: Option<Running>,
}

impl Dovecot {
    /// Runs as nobody if we are root, or else as whoever we are; skips the test if that cannot be.
    pub fn start(message: &str) -> Option<Dovecot> {
        let (dovecot, doveconf) = (tools::need("dovecot")?, tools::need("doveconf")?);
        let Some(login) = tools::file("usr/lib/dovecot", "imap-login") else {
            skip("there is no imap-login of Dovecot");
            return None;
        };
        let (uid, gid) = match effective("Uid:") {
            0 => (NOBODY, NOBODY),
            uid => (uid, effective("Gid:")),
        };
        let names = (name_of("/etc/passwd", uid), name_of("/etc/group", gid));
        let (Some(user), Some(group)) = names else {
            skip(&format!("user {uid} or group {gid} has no name, which Dovecot needs"));
            return None;
        };
        if !is_open(&login) || !is_open(&dovecot.path) {
            skip(&format!("{user} may not read {}", login.display()));
            return None;
        }
        let libexec = login.parent().expect("a directory");
        let mut this = Dovecot {
            imap: free_port(),
            pop3: free_port(),
            imap_proxied: free_port(),
            setup: Setup::new(""),
            link: None,
            running: None,
        };
        let conf = this.conf(&user, &group, (uid, gid), libexec);
        this.setup.write("dovecot.conf", conf);
        this.setup.write("home/Maildir/new/1.a.b", message);
        for dir in ["", "run", "home", "home/Maildir", "home/Maildir/new"] {
            give(&this.setup.dir().join(dir), uid, gid);
        }
        for dir in ["cur", "tmp"] {
            give(&this.setup.dir().join("home/Maildir").join(dir), uid, gid);
        }
        let mut command = doveconf.command();
        if doveconf.path.starts_with("/usr/") {
            command = Command::new(&doveconf.path);
        } else {
            let own = this.library(libexec);
            command.env(
                "LD_LIBRARY_PATH",
                own_first(&command, &[own, libexec.join("modules/old-stats")]),
            );
        }
        // Dovecot would have this program read its configuration, by a path that may not be there.
        let file = this.setup.dir().join("dovecot.conf");
        command.args(["-f", "service=master", "-m", "master", "-c"]).arg(&file).arg("-e");
        command.arg(&dovecot.path).arg("-F").arg("-c").arg(&file);
        if effective("Uid:") == 0 {
            command.uid(uid).gid(gid);
        }
        this.running = Some(spawn(command, this.setup.dir()));
        for port in [this.imap, this.pop3, this.imap_proxied] {
            expect_soon("Dovecot", || listens_on(port));
        }
        Some(this)
    }

    fn conf(&self, user: &str, group: &str, ids: (u32, u32), libexec: &Path) -> String {
        let (dir, libexec) = (self.setup.dir().display(), libexec.display());
        let (uid, gid) = ids;
        format!(
            "base_dir = {dir}/run\nstate_dir = {dir}/run\nlog_path = {dir}/dovecot.log\n\
             libexec_dir = {libexec}\nmail_plugin_dir = {libexec}/modules\n\
             login_plugin_dir = {libexec}/modules/login\n\
             default_internal_user = {user}\ndefault_internal_group = {group}\n\
             default_login_user = {user}\nimport_environment = LD_LIBRARY_PATH\n\
             protocols = imap pop3\nlisten = 127.0.0.1\nssl = no\ndisable_plaintext_auth = no\n\
             first_valid_uid = 1\nauth_failure_delay = 0\n\
             haproxy_trusted_networks = 127.0.0.1\n\
             passdb {{\n driver = static\n args = password=secret\n}}\n\
             userdb {{\n driver = static\n args = uid={uid} gid={gid} home={dir}/home\n}}\n\
             mail_location = maildir:~/Maildir\n\
             service imap-login {{\n chroot =\n inet_listener imap {{\n port = {}\n }}\n\
             inet_listener proxied {{\n port = {}\n haproxy = yes\n }}\n\
             inet_listener imaps {{\n port = 0\n }}\n}}\n\
             service pop3-login {{\n chroot =\n inet_listener pop3 {{\n port = {}\n }}\n\
             inet_listener pop3s {{\n port = 0\n }}\n}}\n\
             service anvil {{\n chroot =\n}}\nservice stats {{\n chroot =\n}}\n",
            self.imap, self.imap_proxied, self.pop3
        )
    }

    /// The directory of a library of Dovecot in which the place of its modules is written, changed
    /// to where they were unpacked: by a link, whose name is no longer than the place.
    fn library(&mut self, libexec: &Path) -> PathBuf {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let place = b"/usr/lib/dovecot/modules\0";
        let turn = NEXT.fetch_add(1, Ordering::Relaxed);
        let link = format!("/tmp/dc-{}-{turn}", std::process::id());
        let _ = std::fs::remove_file(&link);
        symlink(libexec.join("modules"), &link).unwrap();
        let mut library = std::fs::read(libexec.join("libdovecot.so.0")).unwrap();
        let at = library.windows(place.len()).position(|w| w == place).expect("the place");
        let mut name = link.clone().into_bytes();
        assert!(name.len() < place.len(), "{link} is too long");
        name.resize(place.len(), 0);
        library[at..at + place.len()].copy_from_slice(&name);
        self.setup.write("lib/libdovecot.so.0", library);
        self.link = Some(link.into());
        self.setup.dir().join("lib")
    }

    pub fn log(&self) -> String {
        std::fs::read_to_string(self.setup.dir().join("dovecot.log")).unwrap_or_default()
    }
}

impl Drop for Dovecot {
    fn drop(&mut self) {
        drop(self.running.take());
        if let Some(link) = &self.link {
            let _ = std::fs::remove_file(link);
        }
        if std::thread::panicking() {
            println!("{}", self.log());
        }
    }
}

/// Its libraries behind these.
fn own_first(command: &Command, dirs: &[PathBuf]) -> OsString {
    let set = command.get_envs().find(|(name, _)| *name == "LD_LIBRARY_PATH");
    let rest = set.and_then(|(_, value)| value).unwrap_or_default();
    let rest = std::env::split_paths(rest).collect::<Vec<_>>();
    std::env::join_paths(dirs.iter().chain(&rest)).unwrap()
}

fn spawn(mut command: Command, dir: &Path) -> Running {
    let out = std::fs::File::create(dir.join("out")).unwrap();
    command.stdin(Stdio::null()).stdout(out.try_clone().unwrap()).stderr(out);
    Running(command.spawn().unwrap_or_else(|e| panic!("{command:?}: {e}")))
}

/// Postfix, which takes mail for everybody at `mail.test` into one mailbox, from clients at 127.0.0.2
/// and in 192.0.2.0/24: so only from those that a proxy names.
pub struct Postfix {
    pub smtp: u16,
    /// It wants the PROXY protocol.
    pub smtp_proxied: u16,
    setup: Setup,
    running: Option<Running>,
}

const MAIN: &str = "compatibility_level = 3.6
queue_directory = DIR/spool
data_directory = DIR/data
daemon_directory = DAEMONS
meta_directory = DIR/etc
mail_owner = OWNER
setgid_group = GROUP
default_privs = nobody
import_environment = MAIL_CONFIG LD_LIBRARY_PATH LANG=C
maillog_file = DIR/log
maillog_file_prefixes = DIR
inet_interfaces = 127.0.0.1
inet_protocols = ipv4
myhostname = postfix.test
mydestination =
mynetworks = 127.0.0.2, 192.0.2.0/24
virtual_mailbox_domains = mail.test
virtual_mailbox_base = DIR/mail
virtual_mailbox_maps = static:box/
virtual_minimum_uid = 1
virtual_uid_maps = static:65534
virtual_gid_maps = static:65534
alias_maps =
alias_database =
local_recipient_maps =
smtpd_authorized_xclient_hosts = 127.0.0.1
smtpd_peername_lookup = no
smtpd_client_restrictions = permit_mynetworks, reject
";

const MASTER: &str = "127.0.0.1:PORT1 inet n - n - - smtpd
127.0.0.1:PORT2 inet n - n - - smtpd -o smtpd_upstream_proxy_protocol=haproxy
cleanup unix n - n - 0 cleanup
qmgr unix n - n 300 1 qmgr
rewrite unix - - n - - trivial-rewrite
bounce unix - - n - 0 bounce
defer unix - - n - 0 bounce
trace unix - - n - 0 bounce
proxymap unix - - n - - proxymap
anvil unix - - n - 1 anvil
virtual unix - n n - - virtual
postlog unix-dgram n - n - 1 postlogd
";

/// Of a queue, all of them its owner's.
const QUEUE: [&str; 13] = [
    "active", "bounce", "corrupt", "defer", "deferred", "flush", "hold", "incoming", "maildrop",
    "private", "public", "saved", "trace",
];

impl Postfix {
    /// Skips the test if it cannot be.
    pub fn start() -> Option<Postfix> {
        let tool: Tool = tools::need("postconf")?;
        let Some(master) = tools::file("usr/lib/postfix/sbin", "master") else {
            skip("there is no master of Postfix");
            return None;
        };
        if effective("Uid:") != 0 {
            skip("Postfix runs as root alone");
            return None;
        }
        // Its owner and its group are nobody else's in use; these are of every Debian.
        let (owner, group) = ("mail", "news");
        let ids = (id_of("/etc/passwd", owner), id_of("/etc/group", group));
        let (Some(uid), Some(gid)) = ids else {
            skip("there is no user mail, or no group news, for Postfix to run as");
            return None;
        };
        let (smtp, smtp_proxied) = (free_port(), free_port());
        let setup = Setup::new("");
        let dir = setup.dir().to_owned();
        let daemons = master.parent().expect("a directory").display().to_string();
        let fill = |text: &str| {
            text.replace("DIR", &dir.display().to_string())
                .replace("DAEMONS", &daemons)
                .replace("OWNER", owner)
                .replace("GROUP", group)
                .replace("PORT1", &smtp.to_string())
                .replace("PORT2", &smtp_proxied.to_string())
        };
        setup.write("etc/main.cf", fill(MAIN));
        setup.write("etc/master.cf", fill(MASTER));
        QUEUE.iter().for_each(|name| give(&dir.join("spool").join(name), uid, 0));
        std::fs::create_dir(dir.join("spool/pid")).unwrap();
        give(&dir.join("data"), uid, gid);
        give(&dir.join("mail"), NOBODY, NOBODY);
        let mut command = tool.command_of(&master);
        // It ends the processes of its group with itself.
        command.arg("-c").arg(dir.join("etc")).arg("-d").process_group(0);
        let running = Some(spawn(command, &dir));
        let this = Postfix { smtp, smtp_proxied, setup, running };
        for port in [smtp, smtp_proxied] {
            expect_soon("Postfix", || listens_on(port));
        }
        Some(this)
    }

    pub fn log(&self) -> String {
        let read = |name| std::fs::read_to_string(self.setup.dir().join(name)).unwrap_or_default();
        read("out") + &read("log")
    }

    /// Waits for this text in its log.
    #[track_caller]
    pub fn expect_log(&self, text: &str) {
        expect_soon(text, || self.log().contains(text));
    }

    /// The messages that have been delivered, each as it lies there; waited for until there are so many.
    pub fn messages(&self, count: usize) -> Vec<String> {
        let new = self.setup.dir().join("mail/box/new");
        let read = || {
            let entries = std::fs::read_dir(&new).into_iter().flatten().flatten();
            entries.filter_map(|e| std::fs::read_to_string(e.path()).ok()).collect::<Vec<_>>()
        };
        expect_soon("mail that is delivered", || read().len() >= count);
        read()
    }
}

impl Drop for Postfix {
    fn drop(&mut self) {
        drop(self.running.take());
        if std::thread::panicking() {
            println!("{}", self.log());
        }
    }
}
