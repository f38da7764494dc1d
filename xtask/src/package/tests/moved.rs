//! From Debian's nginx to Weir and back, with Debian's own packages, in a network of their own.

use super::{in_name_spaces, made, packed, skip, succeeded};
use crate::peers;
use std::fs;
use std::path::Path;

const SCRIPT: &str = r#"
# It knows what is installed and no archive: packages are files.
mkdir -p /tmp/apt/lists/partial
apt() {
    DEBIAN_FRONTEND=noninteractive apt-get -q -y -o Dpkg::Use-Pty=0 -o APT::Sandbox::User=root \
        -o Dir::State::lists=/tmp/apt/lists -o Dir::Cache=/tmp/apt "$@"
}
from() { get | grep -q "^Server: $1"; }
served() { get && test -s "$1"; }
all_starts
# The peers' program is not to be taken for an installed one.
test ! -e /usr/sbin/nginx
step nginx
dpkg -i /run/made/nginx/*.deb
ip link set lo up
cat > /etc/nginx/sites-available/moved <<END
upstream self { server 127.0.0.1:80; keepalive 2; }
server {
    listen 127.0.0.1:$PORT;
    access_log /var/log/nginx/moved.log;
    include mime.types;
    location = / { return 200 "the moved site"; }
    location /welcome { include proxy_params; proxy_pass http://self/index.nginx-debian.html; }
    location ~ \.php$ { include snippets/fastcgi-php.conf; fastcgi_pass unix:/run/none.sock; }
}
END
ln -s ../sites-available/moved /etc/nginx/sites-enabled/moved
chmod 644 /etc/nginx/sites-available/moved
service nginx restart
until_ok says 'the moved site'
from nginx
old=$(cat /run/nginx.pid)

step a configuration that Weir refuses
echo 'server { listen 8198; location / { proxy_pass https://127.0.0.1:1; proxy_ssl_conf_command RecordPadding 512; } }' > /etc/nginx/conf.d/own.conf
service nginx reload
fails dpkg -i /run/made/weir_*.deb /run/made/weir-nginx_*.deb
test "$(state nginx)" = installed -a "$(state weir-nginx)" != installed
until_ok says 'the moved site'
from nginx
rm /etc/nginx/conf.d/own.conf

step move
dpkg -i /run/made/weir_*.deb
weir -t -q -c /etc/nginx/nginx.conf
apt-mark auto nginx-common
apt install /run/made/weir_*.deb /run/made/weir-nginx_*.deb
test "$(state nginx)" != installed -a "$(state nginx-common)" = installed
until_ok says 'the moved site'
from weir
gone $old
fails /etc/init.d/weir status
exec 4<>/dev/tcp/127.0.0.1/$PORT
printf 'GET /welcome HTTP/1.0\r\n\r\n' >&4
grep -q 'Welcome to nginx' <&4
exec 4>&-
test -e /lib/systemd/system/nginx.service -a -e /usr/lib/systemd/system/nginx.service.d/weir.conf
nginx -V 2>&1 | grep -q weir/
apt -s autoremove > /tmp/said
fails grep -q nginx-common /tmp/said

step rotation
test -s /var/log/nginx/moved.log
if command -v logrotate; then
    logrotate -f /etc/logrotate.d/nginx
else
    mv /var/log/nginx/moved.log /var/log/nginx/moved.log.1
    invoke-rc.d nginx rotate
fi
until_ok served /var/log/nginx/moved.log

step defaults
printf 'ULIMIT="-n 3000"\nDAEMON_OPTS="-e /var/log/nginx/early.log"\n' >> /etc/default/nginx
service nginx restart
until_ok says 'the moved site'
limit $(cat /run/nginx.pid) 3000
title $(cat /run/nginx.pid) | grep -q -- '-e /var/log/nginx/early.log'

step reload
sed -i 's/the moved site/another word/' /etc/nginx/sites-available/moved
pid=$(cat /run/nginx.pid)
service nginx reload
until_ok says 'another word'
sed -i 's/another word/a third/' /etc/nginx/sites-available/moved
dpkg-trigger --by-package=weir nginx-reload
dpkg --triggers-only --pending
until_ok says 'a third'
test "$(cat /run/nginx.pid)" = $pid
service nginx upgrade
until_ok gone $pid
says 'a third'

step update
pid=$(cat /run/nginx.pid)
dpkg -i /run/made/weir_*.deb /run/made/weir-nginx_*.deb
until_ok gone $pid
other /run/nginx.pid $pid
says 'a third'

step purge
fails dpkg --purge nginx-common
fails dpkg --remove nginx-common
echo nginx-common install | dpkg --set-selections
pid=$(cat /run/nginx.pid)
test "$(state nginx-common)" = installed -a -d /var/log/nginx
for file in nginx.conf fastcgi_params sites-enabled/moved; do test -e /etc/nginx/$file; done
says 'a third'
service nginx reload
until_ok says 'a third'
fails dpkg -i /run/made/weir-nginx-common_*.deb
test "$(state nginx-common)" = installed

step back
apt install /run/made/nginx/nginx_*.deb
test "$(state weir-nginx)" != installed -a "$(state nginx)" = installed
until_ok says 'a third'
from nginx
gone $pid
dpkg -i /run/made/weir-nginx_*.deb
until_ok from weir
pid=$(cat /run/nginx.pid)
dpkg -r weir-nginx
gone $pid
test -e /etc/nginx/sites-enabled/moved

step without nginx-common
dpkg -r nginx-common
test "$(state nginx-common)" = config-files -a -e /etc/nginx/sites-enabled/moved
fails dpkg -i /run/made/weir-nginx-common_*.deb
dpkg --purge nginx-common
test ! -e /etc/nginx
dpkg --purge weir-nginx-common
dpkg -i /run/made/weir-nginx-common_*.deb /run/made/weir-nginx_*.deb
PORT=80
until_ok says 'Weir is running'
service nginx stop
step done
"#;

/// The packages of nginx, if they could be downloaded; beside those that are made here.
pub fn brought(dir: &Path) -> bool {
    let Ok(found) = fs::read_dir(peers::packages(&peers::dir(&crate::root()))) else {
        return false;
    };
    fs::create_dir_all(dir.join("nginx")).unwrap();
    let mut names = Vec::new();
    for entry in found.flatten() {
        fs::copy(entry.path(), dir.join("nginx").join(entry.file_name())).unwrap();
        names.push(entry.file_name().to_string_lossy().into_owned());
    }
    ["nginx_", "nginx-common_"].iter().all(|start| names.iter().any(|n| n.starts_with(start)))
}

#[test]
fn the_move_from_debian_and_back_keeps_what_is_served() {
    let Some(made) = made("moved") else { return };
    if !brought(&made.dir) {
        return skip("there are no packages of nginx (cargo xtask peers downloads them)");
    }
    if Path::new("/usr/sbin/nginx").exists() {
        return skip("nginx is installed here, and the root of the test begins as a copy");
    }
    packed(&made);
    succeeded(in_name_spaces(&made.dir, &["-m", "-p", "-n"], SCRIPT));
}
