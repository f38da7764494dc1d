//! The name under which a serving process without a master is found may be taken by anybody: who
//! holds it does not stop a start, and who asks under it gets nothing unless he is root.

use socket2::{Domain, SockAddr, Socket, Type};
use std::io::Write;
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::time::Duration;
use weir_tests::{expect_soon, is_alive, signal, skip, Server, Setup, Signal};

const NOBODY: u32 = 65534;
const CONF: &str = "user nobody nogroup; pid %%DIR%%/the.pid; error_log %%DIR%%/error.log notice;
    events {} http { access_log off;
    server { listen 127.0.0.1:%%PORT_0%%; location / { return 200 ok; } } }";
const PASSED_OVER: &str = "is passed over";

fn is_nginx() -> bool {
    weir_tests::binary().ends_with("nginx")
}

fn name(setup: &Setup) -> SockAddr {
    SockAddr::unix(format!("\0weir-orphan:{}/the.pid", setup.dir().display())).unwrap()
}

/// Takes the name, with this much room for those who ask.
fn hold(setup: &Setup, room: i32) -> Socket {
    let socket = Socket::new(Domain::UNIX, Type::STREAM, None).unwrap();
    socket.bind(&name(setup)).unwrap();
    socket.listen(room).unwrap();
    socket
}

fn check(server: &Server) {
    assert_eq!(server.get("/").text(), "ok");
    if !is_nginx() && !server.children().is_empty() {
        server.expect_error(PASSED_OVER);
        assert_eq!(server.error_log().matches(PASSED_OVER).count(), 1);
    }
}

#[test]
fn a_holder_who_takes_nobody_does_not_stop_a_start() {
    let setup = Setup::new(CONF);
    let _holder = hold(&setup, 0);
    let mut asking = Vec::new();
    loop {
        let socket = Socket::new(Domain::UNIX, Type::STREAM.nonblocking(), None).unwrap();
        if socket.connect(&name(&setup)).is_err() {
            break;
        }
        asking.push(socket);
    }
    check(&setup.start());
}

#[test]
fn a_holder_who_is_slow_or_promises_much_does_not_stop_a_start() {
    let head = |bytes: u64, fds: u64| [bytes.to_ne_bytes(), fds.to_ne_bytes()].concat();
    let slow = vec![0; 16];
    for (at_once, drips) in [(head(1 << 30, 0), 64), (head(24, 1 << 40), 64), (slow, 0)] {
        let setup = Setup::new(CONF);
        let holder = hold(&setup, 8);
        std::thread::spawn(move || {
            let Ok((mut link, _)) = holder.accept() else { return };
            let (first, rest) =
                if drips > 0 { (&at_once[..], &[0; 64][..]) } else { (&[][..], &at_once[..]) };
            let mut going = link.write_all(first).is_ok();
            for byte in rest {
                // Faster than any one read is waited for.
                std::thread::sleep(Duration::from_millis(800));
                going = going && link.write_all(&[*byte]).is_ok();
            }
        });
        check(&setup.start());
    }
}

/// Holds the name as another user, and says nothing.
const HOLD: &str = "import socket,sys\ns=socket.socket(socket.AF_UNIX)\ns.bind(sys.argv[1].replace('@','\\0',1))\n\
    s.listen(5)\nprint('held',flush=True)\nsys.stdin.read()";

/// Asks under the name, and says what came.
const ASK: &str = "import socket,sys\ns=socket.socket(socket.AF_UNIX)\ns.settimeout(5)\n\
    s.connect(sys.argv[1].replace('@','\\0',1))\nprint(len(s.recv(16)))";

/// A program in Python, of another user; `None` where there is none, or no right to be another.
fn python(uid: u32, text: &str, server: &std::path::Path) -> Option<Command> {
    let can =
        Command::new("python3").arg("-c").arg("").uid(uid).status().is_ok_and(|s| s.success());
    let name = format!("@weir-orphan:{}/the.pid", server.display());
    let mut command = Command::new("python3");
    command.args(["-c", text, &name]).uid(uid).gid(NOBODY).current_dir("/");
    can.then_some(command)
}

#[test]
fn another_user_who_holds_the_name_is_not_asked() {
    use std::process::Stdio;
    let setup = Setup::new(CONF);
    let Some(mut command) = python(7, HOLD, setup.dir()) else { return skip("no other user") };
    let command = command.stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut holder = command.spawn().unwrap();
    let mut line = String::new();
    std::io::BufRead::read_line(
        &mut std::io::BufReader::new(holder.stdout.as_mut().unwrap()),
        &mut line,
    )
    .unwrap();
    assert_eq!(line.trim(), "held");
    check(&setup.start());
    drop(holder.stdin.take());
    holder.wait().unwrap();
}

#[test]
fn a_process_without_a_master_gives_its_sockets_to_root_alone() {
    if is_nginx() {
        return skip("nginx gives them to nobody");
    }
    let mut server = Setup::new(CONF).start();
    expect_soon("a serving process", || server.get("/").status == 200);
    let [child] = server.children()[..] else { return skip("no master") };
    server.signal(Signal::Kill);
    server.wait_exit();
    server.expect_error("goes on serving");
    for uid in [NOBODY, 7] {
        let Some(mut ask) = python(uid, ASK, server.dir()) else { return skip("no other user") };
        let said = ask.output().unwrap();
        assert_eq!(String::from_utf8_lossy(&said.stdout).trim(), "0", "{said:?}");
        assert!(is_alive(child));
        assert_eq!(server.get("/").text(), "ok");
    }
    signal(child, Signal::Quit);
    expect_soon("the serving process ends", || !is_alive(child));
}

/// Holds the name and gives a listening socket of root's that it was started with, and a link by which
/// connections would come; says whether the link is believed.
const GIVE: &str = "import socket,sys,struct,array\ns=socket.socket(socket.AF_UNIX)\n\
    s.bind(sys.argv[1].replace('@','\\0',1))\ns.listen(5)\nprint('held',flush=True)\n\
    link,_=s.accept()\nmine,theirs=socket.socketpair(socket.AF_UNIX,socket.SOCK_SEQPACKET)\n\
    link.sendall(struct.pack('=QQ',24,2))\nfds=array.array('i',[0,theirs.fileno()])\n\
    link.sendmsg([b'x'],[(socket.SOL_SOCKET,socket.SCM_RIGHTS,fds)])\n\
    link.sendall(struct.pack('=QQQ',0,1,0))\ntheirs.close()\nmine.settimeout(10)\n\
    print('refused' if not mine.recv(1) else 'asked',flush=True)";

/// A script behind a FastCGI server has such a socket; who has it could else say from where clients
/// come.
#[test]
fn connections_are_taken_only_from_who_had_an_address_that_is_served() {
    use std::io::{BufRead, BufReader};
    use std::process::Stdio;
    if is_nginx() {
        return skip("nginx asks nobody");
    }
    let setup = Setup::new(CONF);
    let Some(mut command) = python(NOBODY, GIVE, setup.dir()) else { return skip("no other user") };
    let roots = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let roots = std::os::fd::OwnedFd::from(roots);
    let mut holder = command.stdin(roots).stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(holder.stdout.take().unwrap()).lines();
    assert_eq!(lines.next().unwrap().unwrap(), "held");
    let server = setup.start();
    assert_eq!(server.get("/").text(), "ok");
    assert_eq!(lines.next().map(Result::unwrap_or_default).as_deref(), Some("refused"));
    holder.wait().unwrap();
}
