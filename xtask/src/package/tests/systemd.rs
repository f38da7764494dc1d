//! The units under a systemd of their own: booted in name spaces, in the root that is thrown away.

use super::{free_port, made, moved, packed, skip, succeeded, HELPERS};
use std::fs;
use std::path::Path;
use std::process::{Command, Output};

/// Seconds after which the whole is killed.
const BOOT_SECS_MAX: &str = "150";

/// systemd makes its control groups below a new one, which is taken away again.
const AROUND: &str = r#"
set -e
mkdir @AT@/base
mount -t tmpfs tmpfs @AT@/base
mkdir @AT@/base/groups
mount -t cgroup2 cgroup2 @AT@/base/groups
own=@AT@/base/groups$(sed -n 's/^0:://p' /proc/self/cgroup)
box=$own/weir-$$
mkdir $box
echo $$ > $box/cgroup.procs
timeout -s KILL @SECS@ unshare -m -p -n -u -i -C -f --kill-child sh @AT@/boot || true
echo $$ > $own/cgroup.procs
find $box -depth -type d -exec rmdir {} +
"#;

/// What is the kernel's for all is not to be written to.
const BOOT: &str = r#"
set -e
r=@AT@/base
n=$r/new
mkdir $r/up $r/work $n
mount -t overlay overlay -o lowerdir=/,upperdir=$r/up,workdir=$r/work $n
mount -t proc proc $n/proc
mount --bind $n/proc/sys $n/proc/sys
mount -o remount,bind,ro $n/proc/sys
mount -t sysfs -o ro sysfs $n/sys
mount -t cgroup2 cgroup2 $n/sys/fs/cgroup
mount -t tmpfs tmpfs $n/run
mount -t tmpfs tmpfs $n/dev
for name in null zero full random urandom tty; do
    touch $n/dev/$name
    mount --bind /dev/$name $n/dev/$name
done
mkdir $n/dev/pts $n/dev/shm $n/run/made
ln -s /proc/self/fd $n/dev/fd
mount --bind @AT@ $n/run/made
cd $n/etc/systemd/system
rm -f *.wants/* $n/usr/sbin/policy-rc.d
# Nothing of the system is started, but what the test asks for.
for target in sysinit basic multi-user network-online; do
    printf '[Unit]\nDefaultDependencies=no\n' > $target.target
done
printf '[Unit]\nDefaultDependencies=no\nRequires=sysinit.target\nWants=test.service\n' > test.target
cat > test.service <<'END'
[Unit]
DefaultDependencies=no
[Service]
Type=oneshot
TimeoutStartSec=infinity
ExecStart=/bin/bash /run/made/script
StandardOutput=file:/run/made/out
StandardError=file:/run/made/err
ExecStopPost=/bin/systemctl --force --force poweroff
END
exec env -i container=lxc PATH=/usr/sbin:/usr/bin:/sbin:/bin chroot $n \
    /lib/systemd/systemd --unit=test.target --show-status=0 --log-target=null
"#;

/// Runs a script as a service; `None` where systemd does not come to it.
fn under_systemd(dir: &Path, script: &str) -> Option<Output> {
    let fill = |text: &str| {
        text.replace("@AT@", &dir.display().to_string()).replace("@SECS@", BOOT_SECS_MAX)
    };
    fs::write(dir.join("around"), fill(AROUND)).unwrap();
    fs::write(dir.join("boot"), fill(BOOT)).unwrap();
    let port = free_port();
    fs::write(dir.join("script"), format!("export LC_ALL=C PORT={port}\n{HELPERS}{script}"))
        .unwrap();
    let around = dir.join("around");
    let said = Command::new("unshare").args(["-m", "sh"]).arg(around).output();
    let (Ok(said), Ok(stdout)) = (said, fs::read(dir.join("out"))) else {
        skip("it takes root, unshare, overlays and a systemd that boots in name spaces");
        return None;
    };
    let stderr = fs::read(dir.join("err")).unwrap_or_default();
    Some(Output { status: said.status, stdout, stderr })
}

const SCRIPT: &str = r#"
main() { systemctl show --value -p MainPID "$1"; }
is_main() { test "$(main "$1")" = "$(cat "/run/$1.pid")"; }
active() { systemctl -q is-active "$1"; }
hardened() { grep -q '^NoNewPrivs:.1' "/proc/$1/status"; }
from() { get | grep -q "^Server: $1"; }

step first installation
dpkg -i /run/made/weir_*.deb
fails active weir
fails systemctl -q is-enabled weir
truncate -s 100M /usr/share/weir/html/large
cat > /etc/weir/conf.d/default.conf <<END
server {
    listen 127.0.0.1:$PORT;
    root /usr/share/weir/html;
    location = / { return 200 'it serves'; }
    location /large { limit_rate 1k; }
}
END
echo 'DAEMON_OPTS="-e /var/log/weir/early.log"' >> /etc/default/weir
mkdir /etc/systemd/system/weir.service.d
printf '[Service]\nLimitNOFILE=3000\n' > /etc/systemd/system/weir.service.d/override.conf
systemctl daemon-reload
systemctl -q enable --now weir
until_ok says 'it serves'
pid=$(cat /run/weir.pid)
is_main weir
limit $pid 3000
title $pid | grep -q -- '-e /var/log/weir/early.log'
hardened $pid

step reload
sed -i 's/it serves/it goes on/' /etc/weir/conf.d/default.conf
systemctl reload weir
until_ok says 'it goes on'
test "$(cat /run/weir.pid)" = $pid

step update
dpkg -i /run/made/weir_*.deb
until_ok gone $pid
until_ok is_main weir
active weir
says 'it goes on'

step restart with 300 downloads
pid=$(cat /run/weir.pid)
ulimit -n 4096
for n in $(seq 300); do
    exec {s}<>"/dev/tcp/127.0.0.1/$PORT"
    printf 'GET /large HTTP/1.0\r\n\r\n' >&$s
    read -r line <&$s
done
from=$SECONDS
systemctl restart weir
test $((SECONDS - from)) -ge 4 -a $((SECONDS - from)) -le 20
gone $pid
until_ok says 'it goes on'
systemctl stop weir
test "$(systemctl is-active weir || true)" = inactive
step the unit of the README
cp /usr/sbin/weir /usr/local/sbin/weir
ln -sf weir /usr/local/sbin/nginx
mkdir /etc/nginx /var/log/nginx
cat > /etc/nginx/nginx.conf <<END
pid /run/nginx.pid;
events { }
http { server { listen 127.0.0.1:$PORT; return 200 'by hand'; } }
END
cat > /etc/systemd/system/weir.service <<'END'
@README@
END
systemctl daemon-reload
systemctl start weir
until_ok says 'by hand'
test "$(main weir)" = "$(cat /run/nginx.pid)"
sed -i 's/by hand/by the README/' /etc/nginx/nginx.conf
systemctl reload weir
until_ok says 'by the README'
pid=$(cat /run/nginx.pid)
systemctl stop weir
gone $pid
rm -r /etc/systemd/system/weir.service /usr/local/sbin/weir /usr/local/sbin/nginx /etc/nginx /var/log/nginx

step purge
dpkg -P weir
test ! -e /etc/systemd/system/multi-user.target.wants/weir.service
ls /run/made/nginx/nginx-common_*.deb || { step done; exit; }

step move from nginx
dpkg -i /run/made/nginx/*.deb
cat > /etc/nginx/conf.d/moved.conf <<END
server { listen 127.0.0.1:$PORT; return 200 'the moved site'; }
END
systemctl restart nginx
until_ok from nginx
pid=$(cat /run/nginx.pid)
dpkg -i /run/made/weir_*.deb /run/made/weir-nginx_*.deb
gone $pid
until_ok from weir
says 'the moved site'
active nginx
is_main nginx
pid=$(cat /run/nginx.pid)
hardened $pid
systemctl reload nginx
invoke-rc.d nginx rotate
dpkg -i /run/made/weir_*.deb /run/made/weir-nginx_*.deb
until_ok gone $pid
until_ok is_main nginx
fails dpkg --purge nginx-common
active nginx
says 'the moved site'

step back
pid=$(cat /run/nginx.pid)
dpkg -r weir-nginx
gone $pid
fails active nginx
dpkg -i /run/made/nginx/nginx_*.deb
until_ok from nginx
step done
"#;

#[test]
fn the_units_do_under_systemd_what_they_say() {
    let Some(made) = made("systemd") else { return };
    if !Path::new("/lib/systemd/systemd").exists() {
        return skip("there is no systemd");
    }
    moved::brought(&made.dir);
    packed(&made);
    let readme = fs::read_to_string(crate::root().join("README.md")).unwrap();
    let (_, unit) = readme.split_once("```ini\n").unwrap();
    let (unit, _) = unit.split_once("```").unwrap();
    let unit: String = unit.lines().map(|l| format!("{}\n", l.trim_start())).collect();
    succeeded(under_systemd(&made.dir, &SCRIPT.replace("@README@", &unit)));
}
