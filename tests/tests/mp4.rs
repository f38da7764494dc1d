//! `mp4`: a part of a film has the samples of its time, wherever they lie in it.

use weir_tests::{Server, Setup};

const CONF: &str = "events {} http { access_log off; types { video/mp4 mp4; }
    server { listen 127.0.0.1:%%PORT_0%%; root %%DIR%%; mp4_buffer_size 100; location / { mp4; }
        location /key/ { mp4; mp4_start_key_frame on; alias %%DIR%%/; }
        location /small/ { mp4; mp4_max_buffer_size 100; alias %%DIR%%/; } } }";

fn numbers(all: &[u32]) -> Vec<u8> {
    all.iter().flat_map(|n| n.to_be_bytes()).collect()
}

fn atom(name: &str, body: &[u8]) -> Vec<u8> {
    [&(body.len() as u32 + 8).to_be_bytes()[..], name.as_bytes(), body].concat()
}

/// Sample `n` of 20, each of a second: `n + 10` times the byte `n`.
fn sample(n: usize) -> Vec<u8> {
    vec![n as u8; n + 10]
}

/// Chunks of three samples with five bytes between them; every fourth sample is a key frame.
fn film(index_first: bool) -> Vec<u8> {
    let chunks: Vec<Vec<u8>> =
        (0..7).map(|c| (3 * c..20.min(3 * c + 3)).flat_map(sample).collect()).collect();
    let media: Vec<u8> = chunks.iter().flat_map(|c| [&c[..], b"-----"].concat()).collect();
    let index = |at: usize| {
        let mut next = at;
        let offsets: Vec<u32> = chunks
            .iter()
            .map(|c| {
                let o = next;
                next += c.len() + 5;
                o as u32
            })
            .collect();
        let sizes: Vec<u32> = (10..30).collect();
        let stbl = [
            atom("stsd", &numbers(&[0, 1, 8, 0])),
            atom("stts", &numbers(&[0, 1, 20, 1000])),
            atom("stss", &numbers(&[0, 5, 1, 5, 9, 13, 17])),
            atom("ctts", &numbers(&[0, 2, 10, 1, 10, 2])),
            atom("stsc", &numbers(&[0, 2, 1, 3, 1, 7, 2, 1])),
            atom("stsz", &numbers(&[&[0, 0, 20], &sizes[..]].concat())),
            atom("stco", &numbers(&[&[0, 7], &offsets[..]].concat())),
        ];
        let minf =
            [atom("vmhd", &[0; 12]), atom("dinf", &[]), atom("stbl", &stbl.concat())].concat();
        let mdhd = atom("mdhd", &numbers(&[0, 0, 0, 1000, 20_000, 0]));
        let mdia = [mdhd, atom("hdlr", &[0; 24]), atom("minf", &minf)].concat();
        let tkhd = [numbers(&[0, 0, 0, 1, 0, 20_000]), vec![0; 60]].concat();
        let trak = atom("trak", &[atom("tkhd", &tkhd), atom("mdia", &mdia)].concat());
        let mvhd = [numbers(&[0, 0, 0, 1000, 20_000]), vec![0; 80]].concat();
        atom("moov", &[atom("mvhd", &mvhd), trak].concat())
    };
    let ftyp = atom("ftyp", b"isomisom");
    match index_first {
        true => {
            [&ftyp[..], &index(ftyp.len() + index(0).len() + 8), &atom("mdat", &media)].concat()
        }
        false => [&ftyp[..], &atom("mdat", &media), &index(ftyp.len() + 8)].concat(),
    }
}

/// The body of an atom, the first of that name on the way.
fn find<'a>(data: &'a [u8], path: &[&str]) -> &'a [u8] {
    let mut at = 0;
    loop {
        let size = u32::from_be_bytes(data[at..at + 4].try_into().unwrap()) as usize;
        if &data[at + 4..at + 8] == path[0].as_bytes() {
            let body = &data[at + 8..at + size];
            return if path.len() == 1 { body } else { find(body, &path[1..]) };
        }
        at += size;
    }
}

fn table(film: &[u8], name: &str) -> Vec<u32> {
    let body = find(film, &["moov", "trak", "mdia", "minf", "stbl", name]);
    body.chunks(4).map(|b| u32::from_be_bytes(b.try_into().unwrap())).collect()
}

/// The samples that a player finds in it.
fn samples(film: &[u8]) -> Vec<Vec<u8>> {
    let (stsc, stsz, stco) = (table(film, "stsc"), table(film, "stsz"), table(film, "stco"));
    let mut sizes = stsz[3..].iter();
    let mut found = Vec::new();
    for (chunk, offset) in stco[2..].iter().enumerate() {
        let run = stsc[2..].chunks(3).rfind(|run| run[0] as usize <= chunk + 1).unwrap();
        let mut at = *offset as usize;
        for size in sizes.by_ref().take(run[1] as usize) {
            found.push(film[at..at + *size as usize].to_vec());
            at += *size as usize;
        }
    }
    found
}

fn start() -> Server {
    let setup = Setup::new(CONF).file("first.mp4", film(true)).file("last.mp4", film(false));
    setup.file("bad.mp4", &film(false)[..900]).file("no.mp4", "rubbish").file("d/x", "").start()
}

#[test]
fn parts_have_the_samples_of_their_time() {
    let server = start();
    for file in ["first", "last"] {
        for (args, from, to) in [
            ("start=5.5&end=11.5", 5, 11),
            ("start=3", 3, 20),
            ("end=1", 0, 1),
            ("start=7&end=8", 7, 8),
            ("start=0.999&end=20", 0, 19),
            ("start=17.5&end=100", 17, 20),
            ("start=2&end=1", 2, 20),
        ] {
            if (from, to) == (7, 8) && weir_tests::binary().ends_with("nginx") {
                // It finds no data in the middle of a chunk.
                continue;
            }
            let answer = server.get(&format!("/{file}.mp4?{args}"));
            let what = format!("{file} {args}");
            assert_eq!(
                (answer.status, answer.header("Content-Type")),
                (200, Some("video/mp4")),
                "{what}"
            );
            let wanted: Vec<Vec<u8>> = (from..to).map(sample).collect();
            assert_eq!(samples(&answer.body), wanted, "{what}");
            assert_eq!(table(&answer.body, "stts")[3..], [1000]);
            let shown: u32 = table(&answer.body, "ctts")[2..].chunks(2).map(|run| run[0]).sum();
            assert_eq!(shown as usize, to - from, "{what}");
            let keys = [0, 4, 8, 12, 16].iter().filter(|k| (from..to).contains(k)).count();
            assert_eq!(table(&answer.body, "stss").len() - 2, keys, "{what}");
            find(&answer.body, &["mdat"]);
        }
        assert!(server.get(&format!("/{file}.mp4")).body == film(file == "first"));
    }
    let part = server.get("/last.mp4?start=5").body;
    let range = server.get_with("/last.mp4?start=5", "Range: bytes=100-149\r\n");
    assert_eq!((range.status, &range.body[..]), (206, &part[100..150]));
    assert_eq!(
        server.head("/last.mp4?start=5").header("Content-Length"),
        Some(&*part.len().to_string())
    );
}

#[test]
fn parts_begin_with_key_frames_where_that_is_wanted() {
    let server = start();
    let part = server.get("/key/first.mp4?start=6&end=9").body;
    assert_eq!(samples(&part), (4..9).map(sample).collect::<Vec<_>>());
    let edit = find(&part, &["moov", "trak", "edts", "elst"]);
    assert_eq!(edit, numbers(&[1 << 24, 1, 0, 3000, 0, 2000, 1 << 16]));
    assert_eq!(samples(&server.get("/key/first.mp4?start=8").body).len(), 12);
}

#[test]
fn what_is_no_film_is_refused() {
    let server = start();
    for (path, status) in [
        ("/bad.mp4?start=1", 500),
        ("/no.mp4?start=1", 500),
        ("/small/first.mp4?start=1", 500),
        ("/first.mp4?start=21", 500),
        ("/first.mp4?start=x", 200),
        ("/first.mp4?start=0", 200),
        ("/no.mp4", 200),
        ("/none.mp4?start=1", 404),
        ("/d?start=1", 301),
    ] {
        assert_eq!(server.get(path).status, status, "{path}");
    }
    assert_eq!(server.post("/first.mp4", "").status, 405);
    server.expect_error("mp4 moov atom is too large");
}
