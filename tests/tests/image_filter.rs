//! `image_filter`: pictures made here, and what becomes of them. (nginx has it with GD; what the test compares is
//! what both must do.)

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::Arc;
use weir_tests::{run_cli, skip, Next, Origin, Response, Server, Setup};

/// Without the module there is nothing to test.
fn has_module() -> bool {
    let said = run_cli(&["-t"], "events {} http { server { location / { image_filter off; } } }");
    if said.code != 0 {
        skip("built without image_filter");
    }
    said.code == 0
}

/// The left half red, the right half blue.
fn pixels(width: usize, height: usize) -> Vec<u8> {
    let colour = |n: usize| if n % width < width / 2 { [220, 20, 20] } else { [20, 20, 220] };
    (0..width * height).flat_map(colour).collect()
}

fn png(width: usize, height: usize) -> Vec<u8> {
    let mut out = Vec::new();
    let mut encoder = png::Encoder::new(&mut out, width as u32, height as u32);
    encoder.set_color(png::ColorType::Rgb);
    encoder.write_header().unwrap().write_image_data(&pixels(width, height)).unwrap();
    out
}

fn jpeg(width: usize, height: usize) -> Vec<u8> {
    let mut out = Vec::new();
    let encoder = jpeg_encoder::Encoder::new(&mut out, 90);
    let text = pixels(width, height);
    encoder.encode(&text, width as u16, height as u16, jpeg_encoder::ColorType::Rgb).unwrap();
    out
}

fn gif(width: usize, height: usize) -> Vec<u8> {
    let mut out = Vec::new();
    let frame = gif::Frame::from_rgb(width as u16, height as u16, &pixels(width, height));
    let mut encoder = gif::Encoder::new(&mut out, width as u16, height as u16, &[]).unwrap();
    encoder.write_frame(&frame).unwrap();
    drop(encoder);
    out
}

fn webp(width: usize, height: usize) -> Vec<u8> {
    let text = pixels(width, height);
    webp::Encoder::from_rgb(&text, width as u32, height as u32).encode(90.0).to_vec()
}

/// What a picture is, and its size, as `image_filter size` says it.
fn told(server: &Server, path: &str) -> String {
    let said = server.get(path);
    assert_eq!(said.header("Content-Type"), Some("application/json"), "{path}");
    assert_eq!(said.content_length(), Some(said.body.len()));
    said.text()
}

/// The first and the last colour of a PNG, and its width and height.
fn look(response: &Response) -> ([u8; 3], [u8; 3], u32, u32) {
    assert_eq!(response.status, 200);
    assert_eq!(response.content_length(), Some(response.body.len()));
    let mut reader = png::Decoder::new(std::io::Cursor::new(&response.body)).read_info().unwrap();
    let mut text = vec![0; reader.output_buffer_size().unwrap()];
    let info = reader.next_frame(&mut text).unwrap();
    let of = |at: usize| [text[at], text[at + 1], text[at + 2]];
    (of(0), of(info.buffer_size() - 3), info.width, info.height)
}

const RED: [u8; 3] = [220, 20, 20];
const BLUE: [u8; 3] = [20, 20, 220];

fn start() -> Server {
    let types =
        "types { image/png png; image/jpeg jpg; image/gif gif; image/webp webp; text/html html; }";
    Setup::new(&format!(
        "events {{}} http {{ {types} server {{ listen 127.0.0.1:%%PORT_0%%; root %%DIR%%/html;
            location /size/ {{ image_filter size; alias %%DIR%%/html/; }}
            location /test/ {{ image_filter test; alias %%DIR%%/html/; }}
            location /small/ {{ image_filter resize 50 50; alias %%DIR%%/html/; }}
            location /both/ {{ image_filter resize 50 -; image_filter rotate 90; alias %%DIR%%/html/; }}
            location /crop/ {{ image_filter crop 40 40; image_filter_sharpen 20; alias %%DIR%%/html/; }}
            location /left/ {{ image_filter crop 40 40; image_filter_crop_offset left top; alias %%DIR%%/html/; }}
            location /right/ {{ image_filter crop 40 40; image_filter_crop_offset $arg_x bottom; alias %%DIR%%/html/; }}
            location /turn/ {{ image_filter rotate 180; alias %%DIR%%/html/; }}
            location /asked/ {{ image_filter crop $arg_w $arg_h; image_filter rotate $arg_a; alias %%DIR%%/html/; }}
            location /poor/ {{ image_filter resize 50 -; image_filter_jpeg_quality $arg_q;
                image_filter_webp_quality $arg_q; image_filter_interlace on; image_filter_transparency off;
                alias %%DIR%%/html/; }}
            location /little/ {{ image_filter resize 50 50; image_filter_buffer 100; alias %%DIR%%/html/; }}
            location /instead/ {{ image_filter resize 50 50; error_page 415 = /empty; alias %%DIR%%/html/; }}
            location = /empty {{ empty_gif; }}
            location /measured/ {{ proxy_pass http://127.0.0.1:%%PORT_0%%/small/; image_filter size; }}
            location /poorly/ {{ proxy_pass http://127.0.0.1:%%PORT_0%%/poor/; image_filter size; }}
        }} }}"
    ))
    .file("html/a.png", png(200, 100))
    .file("html/a.jpg", jpeg(200, 100))
    .file("html/a.gif", gif(200, 100))
    .file("html/a.webp", webp(200, 100))
    .file("html/tiny.png", png(4, 4))
    .file("html/page.html", "<html>no picture at all</html>")
    .file("html/short.png", "\\x89PNG")
    .file("html/torn.png", &png(200, 100)[..60])
    .file("html/none.html", "")
    .start()
}

#[test]
fn sizes_are_told_and_changed() {
    if !has_module() {
        return;
    }
    let server = start();
    for (file, kind) in [("a.png", "png"), ("a.jpg", "jpeg"), ("a.gif", "gif"), ("a.webp", "webp")]
    {
        let json = |w: u32, h: u32| {
            format!(
                "{{ \"img\" : {{ \"width\": {w}, \"height\": {h}, \"type\": \"{kind}\" }} }}\r\n"
            )
        };
        assert_eq!(told(&server, &format!("/size/{file}")), json(200, 100));
        assert_eq!(told(&server, &format!("/measured/{file}")), json(50, 25), "{file}");
        let made = server.get(&format!("/small/{file}"));
        assert_eq!(made.header("Content-Type"), Some(format!("image/{kind}").as_str()));
        assert!(made.header("ETag").is_some_and(|tag| tag.starts_with("W/")), "{file}");
        assert_eq!(made.header("Accept-Ranges"), None);
        let head = server.head(&format!("/small/{file}"));
        assert_eq!(head.header("Content-Length"), made.header("Content-Length"), "{file}");
        let plain = server.get(&format!("/test/{file}"));
        assert_eq!(plain.body, server.get(&format!("/{file}")).body);
    }
    for file in ["page.html", "short.png", "none.html"] {
        assert_eq!(told(&server, &format!("/size/{file}")), "{}\r\n", "{file}");
    }
}

#[test]
fn pictures_are_turned_and_cut() {
    if !has_module() {
        return;
    }
    let server = start();
    for (path, expected) in [
        ("/small/a.png", (RED, BLUE, 50, 25)),
        ("/both/a.png", (BLUE, RED, 25, 50)),
        ("/crop/a.png", (RED, BLUE, 40, 40)),
        ("/left/a.png", (RED, RED, 40, 40)),
        ("/right/a.png?x=right", (BLUE, BLUE, 40, 40)),
        ("/right/a.png?x=other", (RED, BLUE, 40, 40)),
        ("/turn/a.png", (BLUE, RED, 200, 100)),
        ("/asked/a.png?w=20&h=10&a=0", (RED, BLUE, 20, 10)),
        ("/asked/a.png?w=20&h=10&a=90", (BLUE, RED, 10, 10)),
        ("/small/tiny.png", (RED, BLUE, 4, 4)),
    ] {
        assert_eq!(look(&server.get(path)), expected, "{path}");
    }
    // As it is, with the tag that the file has.
    assert!(server.get("/small/tiny.png").header("ETag").is_some_and(|tag| !tag.starts_with("W/")));
    for file in ["a.jpg", "a.webp"] {
        let length = |q: u32| server.get(&format!("/poor/{file}?q={q}")).body.len();
        assert!(length(5) < length(95), "{file}");
    }
    for (path, quality) in [("/small/a.jpg", "quality = 75"), ("/poor/a.jpg?q=40", "quality = 40")]
    {
        assert!(server.get(path).text().contains(quality), "{path}");
    }
}

#[test]
fn what_is_no_picture_or_too_large_is_415() {
    if !has_module() {
        return;
    }
    let server = start();
    for path in [
        "/test/page.html",
        "/small/page.html",
        "/small/short.png",
        "/small/torn.png",
        "/small/none.html",
        "/small/missing.png",
        "/little/a.png",
        "/turn/torn.png",
        "/asked/a.png?w=0&h=5",
        "/asked/a.png?w=x&h=5",
        "/poor/a.jpg?q=0",
    ] {
        let response = server.get(path);
        assert_eq!(response.status, 415, "{path}");
        assert!(response.text().contains("415 Unsupported Media Type"), "{path}");
    }
    let instead = server.get("/instead/page.html");
    assert_eq!((instead.status, instead.header("Content-Type")), (200, Some("image/gif")));
    // The connection goes on.
    let mut client = server.connect();
    for path in ["/small/page.html", "/small/a.png", "/small/page.html"] {
        assert_eq!(client.get(path).status, if path.ends_with("png") { 200 } else { 415 });
    }
    assert_eq!(server.get("/test/a.png").status, 200);
}

/// In pieces, without a length, and longer than it may be.
#[test]
fn from_a_server_in_pieces() {
    if !has_module() {
        return;
    }
    let asked = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&asked);
    let origin = Origin::start(move |request, conn| {
        count.fetch_add(1, Ordering::SeqCst);
        let picture = jpeg(400, 300);
        let mut text = picture.clone();
        if request.target().contains("long") {
            text.resize(200_000, 0);
        }
        conn.write("HTTP/1.1 200 OK\r\nRefresh: 5\r\nTransfer-Encoding: chunked\r\n\r\n");
        for piece in text.chunks(900) {
            conn.write(format!("{:x}\r\n", piece.len()));
            conn.write(piece);
            conn.write("\r\n");
        }
        conn.write("0\r\n\r\n");
        Next::Keep
    });
    let server = Setup::new(
        "events {} http { server { listen 127.0.0.1:%%PORT_0%%; image_filter_buffer 100k;
            location / { image_filter resize 40 40; proxy_pass http://%%O%%; proxy_http_version 1.1; } } }",
    )
    .set("O", origin.address())
    .start();
    for _ in 0..3 {
        let response = server.get("/a");
        assert_eq!((response.status, response.header("Refresh")), (200, None));
        assert_eq!(response.header("Content-Type"), Some("image/jpeg"));
        assert_eq!(response.content_length(), Some(response.body.len()));
        assert_eq!(server.get("/long").status, 415);
    }
    assert_eq!(asked.load(Ordering::SeqCst), 6);
}

/// One worker, which serves while a thread decodes.
/// A number that is none matters only to the kind that it is for; what is refused leaves no fields behind.
#[test]
fn what_is_of_another_kind_does_not_matter() {
    if !has_module() {
        return;
    }
    let server = start();
    assert_eq!(server.get("/poor/a.png").status, 200);
    assert_eq!(server.get("/poor/a.jpg").status, 415);
    let jpeg = server.get("/small/a.jpg").body;
    assert_eq!(&jpeg[..4], b"\xff\xd8\xff\xe0");
    assert_eq!(&jpeg[6..10], b"JFIF");
    let backend = Origin::start(|_, to| {
        to.reply(
            "200 OK",
            "Content-Type: text/html\r\nETag: \"zz\"\r\nContent-Encoding: x\r\nX-Foo: 1\r\n",
            "no picture at all, but text",
        );
        Next::Keep
    });
    let server = Setup::new(
        "events {} http { server { listen 127.0.0.1:%%PORT_0%%;
        location /bare { proxy_pass http://%%UP%%; image_filter test; }
        location / { proxy_pass http://%%UP%%; image_filter test; error_page 415 = /empty; }
        location = /empty { empty_gif; } } }",
    )
    .set("UP", backend.address())
    .start();
    for (path, status) in [("/", 200), ("/bare", 415)] {
        let answer = server.get(path);
        assert_eq!(answer.status, status);
        for name in ["ETag", "Content-Encoding", "X-Foo"] {
            assert_eq!(answer.header(name), None, "{path} {name}");
        }
    }
}

/// Files that wait for their turn have a bound together, and none takes more than its length: 60 of 20 MB would be 1,200, and 256 are what may be.
#[test]
fn files_that_wait_for_their_turn_do_not_fill_the_memory() {
    if !has_module() || !run_cli(&["-v"], "").stderr.contains("(weir/") {
        return;
    }
    // What comes behind the picture is no part of it.
    let mut large = png(600, 600);
    large.resize(20_000_000, 0);
    let server = Setup::new(
        "worker_processes 1; events {} http { types { image/png png; }
            server { listen 127.0.0.1:%%PORT_0%%; image_filter_buffer 20m;
            location / { image_filter resize 30 30; root %%DIR%%/html; } } }",
    )
    .file("html/large.png", large)
    .start();
    // Wine has the program itself in memory of its own.
    let before = server.memory_peak();
    let mut clients: Vec<_> = (0..60).map(|_| server.connect()).collect();
    clients.iter_mut().for_each(|client| client.send_get("/large.png"));
    // Half of them go; others have their room.
    clients.truncate(30);
    for client in &mut clients {
        assert_eq!(look(&client.response()), (RED, BLUE, 30, 30));
    }
    let growth = server.memory_growth(before) / (1024 * 1024);
    assert!(growth < 420, "{growth} MB");
}

#[test]
fn others_are_served_meanwhile() {
    if !has_module() || !run_cli(&["-v"], "").stderr.contains("(weir/") {
        return;
    }
    // A few bytes that promise as many pixels as the format has.
    let mut huge = gif(2, 2);
    huge[6..10].fill(0xff);
    let server = Setup::new(
        "worker_processes 1; events {} http { server { listen 127.0.0.1:%%PORT_0%%;
            location / { image_filter resize 30 30; image_filter_buffer 20m; root %%DIR%%/html; }
            location /quick { return 200 quick; } } }",
    )
    .file("html/large.png", png(2000, 1500))
    .file("html/huge.gif", huge)
    .start();
    let (mut slow, mut quick) = (server.connect(), server.connect());
    assert_eq!(quick.get("/quick").text(), "quick");
    slow.send_get("/large.png");
    assert_eq!(quick.get("/quick").text(), "quick");
    assert!(slow.is_silent(std::time::Duration::from_millis(1)), "the picture came first");
    let made = slow.response();
    assert_eq!(look(&made), (RED, BLUE, 30, 22));
    // More pixels than are decoded.
    assert_eq!(server.get("/huge.gif").status, 415);
    server.expect_error("65535 x 65535 are more than");
    // A client that goes.
    slow.send_get("/large.png");
    drop(slow);
    assert_eq!(quick.get("/quick").text(), "quick");
}

/// Millions of pixels in a file of one KB, and all in one row; several at once.
#[test]
fn what_pictures_take_together_has_a_bound() {
    if !has_module() || !run_cli(&["-v"], "").stderr.contains("(weir/") {
        return;
    }
    const WIDTH: usize = 8_000_000;
    const AT_ONCE: usize = 4;
    let mut wide = Vec::new();
    let mut encoder = png::Encoder::new(&mut wide, WIDTH as u32, 1);
    encoder.set_color(png::ColorType::Grayscale);
    encoder.set_depth(png::BitDepth::One);
    encoder.write_header().unwrap().write_image_data(&vec![0; WIDTH.div_ceil(8)]).unwrap();
    let server = Setup::new(
        "worker_processes 1; events {} http { server { listen 127.0.0.1:%%PORT_0%%;
            location / { image_filter resize 100 100; root %%DIR%%/html; } } }",
    )
    .file("html/wide.png", wide)
    .start();
    let Some(before) = server.memory() else { return skip("the system has no /proc") };
    let mut clients: Vec<_> = (0..AT_ONCE).map(|_| server.connect()).collect();
    clients.iter_mut().for_each(|client| client.send_get("/wide.png"));
    for mut client in clients {
        client.set_patience(std::time::Duration::from_secs(60));
        assert_eq!(client.response().status, 200);
    }
    let most = server.memory_growth(before);
    assert!(most < 400 << 20, "{most} bytes");
}

#[test]
fn what_is_refused() {
    if !has_module() {
        return;
    }
    for (directive, message) in [
        ("image_filter maybe", "invalid parameter \"maybe\""),
        ("image_filter resize 100", "invalid parameter \"resize\""),
        ("image_filter resize 0 100", "invalid parameter \"0\""),
        ("image_filter_crop_offset top left", "invalid"),
        ("image_filter crop 100 x", "invalid parameter \"x\""),
        ("image_filter rotate 45", "invalid parameter \"45\""),
        ("image_filter_jpeg_quality 0", "invalid value \"0\""),
        ("image_filter_webp_quality x", "invalid value \"x\""),
        ("image_filter_buffer x", "\"image_filter_buffer\" directive invalid value"),
        ("image_filter_interlace 1", "it must be \"on\" or \"off\""),
    ] {
        let conf = format!("events {{}} http {{ server {{ location / {{ {directive}; }} }} }}");
        let said = run_cli(&["-t"], &conf);
        assert!(said.code == 1 && said.stderr.contains(message), "{directive}: {}", said.stderr);
    }
    for directive in
        ["image_filter_sharpen 0", "image_filter_sharpen 50", "image_filter_transparency on"]
    {
        let conf = format!("events {{}} http {{ {directive}; }}");
        assert_eq!(run_cli(&["-t"], &conf).code, 0, "{directive}");
    }
}
