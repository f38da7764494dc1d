//! How long a stop lasts while WebSockets are open.

use super::{commands, in_a_root, made, packed, succeeded};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};

const OPEN: usize = 300;

/// A backend that agrees to every WebSocket, and says nothing more.
fn backend() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        let mut kept: Vec<TcpStream> = Vec::new();
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let mut head = Vec::new();
            let mut byte = [0; 1];
            while !head.ends_with(b"\r\n\r\n") && stream.read(&mut byte).is_ok_and(|n| n == 1) {
                head.extend_from_slice(&byte);
            }
            let answer = b"HTTP/1.1 101 Switching Protocols\r\n\
                           Upgrade: websocket\r\nConnection: Upgrade\r\n\r\n";
            let _ = stream.write_all(answer);
            kept.push(stream);
        }
    });
    port
}

const SCRIPT: &str = r#"
all_starts
ulimit -n 4096
dpkg -i /run/made/weir_*.deb
cat > /etc/weir/conf.d/default.conf <<END
map \$http_upgrade \$connection_upgrade { default upgrade; '' close; }
server {
    listen 127.0.0.1:$PORT;
    location / { return 200 'it serves'; }
    location /ws {
        proxy_pass http://127.0.0.1:@BACKEND@;
        proxy_http_version 1.1;
        proxy_set_header Upgrade \$http_upgrade;
        proxy_set_header Connection \$connection_upgrade;
    }
}
END
open_sockets() {
    sockets=()
    for n in $(seq @OPEN@); do
        exec {s}<>"/dev/tcp/127.0.0.1/$PORT"
        printf 'GET /ws HTTP/1.1\r\nHost: a\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n' >&$s
        sockets+=($s)
    done
    for s in "${sockets[@]}"; do
        read -r line <&$s
        [[ $line == *' 101 '* ]]
        while [[ $line != $'\r' ]]; do read -r line <&$s; done
    done
}
all_ended() { for s in "${sockets[@]}"; do timeout 10 cat <&$s > /dev/null; exec {s}>&-; done; }
# Seconds that a command takes.
lasts() { local from=$SECONDS; "$@"; took=$((SECONDS - from)); }
by_unit() { @STOP@; }
started() { service weir start && until_ok says 'it serves'; pid=$(cat /run/weir.pid); }

step the unit, as systemd goes on
started
open_sockets
lasts by_unit || true
test $took -ge 4 -a $took -le 20
kill -0 $pid
# The sockets are still served in this time, and no new one is taken.
fails says 'it serves'
kill -@SIGNAL@ $pid
until_ok gone $pid
all_ended
test ! -e /run/weir.pid

step the script
echo 'STOP_SCHEDULE=QUIT/1/TERM/20/KILL/5' > /etc/default/weir
started
open_sockets
lasts service weir restart
test $took -le 15
until_ok says 'it serves'
gone $pid
all_ended

step upgrade and reload end none
pid=$(cat /run/weir.pid)
open_sockets
service weir reload
service weir upgrade
until_ok says 'it serves'
kill -0 $pid
other /run/weir.pid $pid
for s in "${sockets[@]}"; do fails read -r -t 0 <&$s; done
service weir stop
kill -TERM $pid
until_ok gone $pid
all_ended

step worker_shutdown_timeout
echo 'worker_shutdown_timeout 200ms;' >> /etc/weir/weir.conf
started
open_sockets
# Its success says that QUIT was enough.
by_unit
gone $pid
all_ended
step done
"#;

#[test]
fn a_stop_with_open_websockets_ends_in_time() {
    let Some(made) = made("stops") else { return };
    packed(&made);
    assert_eq!(commands("weir.service", "TimeoutStopSec"), "5");
    assert_eq!(commands("weir.service", "KillMode"), "mixed");
    // systemd's own, as the unit names none.
    let signal = "TERM";
    let script = SCRIPT
        .replace("@STOP@", &commands("weir.service", "ExecStop"))
        .replace("@SIGNAL@", signal)
        .replace("@BACKEND@", &backend().to_string())
        .replace("@OPEN@", &OPEN.to_string());
    succeeded(in_a_root(&made.dir, &script));
}
