//! A Kafka broker of one node (KRaft), from its jars, for as long as a test runs.

use crate::setup::free_port;
use crate::tools::{self, Running, Tool};
use crate::wait_for;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// It takes its time to start, the more so on a busy machine.
const START_MAX: Duration = Duration::from_secs(60);
const SMALL: [&str; 4] = ["-Xmx256m", "-Xss512k", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"];

pub struct Kafka {
    java: Tool,
    classes: String,
    dir: PathBuf,
    _broker: Running,
}

/// What a listener is told of: its name, its port, and the port that clients are told to come to.
pub type Listener = (&'static str, u16, u16);

impl Kafka {
    /// Starts one below `dir`; nothing if it cannot be had. `more` is further configuration, `scram` a user to add.
    pub fn start(dir: &Path, listeners: &[Listener], more: &str, scram: &str) -> Option<Kafka> {
        let (java, classes) = tools::need_jars("kafka")?;
        let dir = dir.join("kafka");
        std::fs::create_dir_all(&dir).unwrap();
        let controller = free_port();
        let join =
            |f: &dyn Fn(&Listener) -> String| listeners.iter().map(f).collect::<Vec<_>>().join(",");
        let bound = join(&|(name, port, _)| format!("{name}://127.0.0.1:{port}"));
        let told = join(&|(name, _, port)| format!("{name}://127.0.0.1:{port}"));
        let conf = format!(
            "process.roles=broker,controller\nnode.id=1\n\
             controller.quorum.voters=1@127.0.0.1:{controller}\n\
             listeners={bound},CONTROLLER://127.0.0.1:{controller}\nadvertised.listeners={told}\n\
             controller.listener.names=CONTROLLER\ninter.broker.listener.name=PLAINTEXT\n\
             listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SASL_PLAINTEXT:SASL_PLAINTEXT,SASL_SSL:SASL_SSL\n\
             log.dirs={}\nnum.partitions=3\noffsets.topic.replication.factor=1\n\
             transaction.state.log.replication.factor=1\ntransaction.state.log.min.isr=1\n\
             log.cleaner.dedupe.buffer.size=4194304\nlog.cleaner.threads=1\nlog.index.size.max.bytes=65536\n{more}\n",
            dir.join("data").display()
        );
        let file = dir.join("server.properties");
        std::fs::write(&file, conf).unwrap();
        let mut format = java.command();
        format.args(SMALL).args(["-cp", &classes, "kafka.tools.StorageTool", "format"]);
        format.args(["-t", "MkU3OEVBNTcwNTJENDM2Qg", "-c"]).arg(&file);
        if !scram.is_empty() {
            format.args(["--add-scram", scram]);
        }
        let said = tools::finish(&mut format, b"");
        assert_eq!(said.code, 0, "{} {}", said.stdout, said.stderr);
        let log = std::fs::File::create(dir.join("log")).unwrap();
        let broker = java.start(|command| {
            command.args(SMALL).args(["-cp", &classes, "kafka.Kafka"]).arg(&file);
            command.stdout(log.try_clone().unwrap()).stderr(log);
        });
        let up = wait_for(|| listeners.iter().all(|(_, p, _)| tools::listens_on(*p)), START_MAX);
        assert!(up, "{}", std::fs::read_to_string(dir.join("log")).unwrap_or_default());
        Some(Kafka { java, classes, dir, _broker: broker })
    }

    /// What is in a topic: partition, key, value of all records.
    pub fn records(&self, topic: &str) -> Vec<(u32, String, String)> {
        let mut found = Vec::new();
        for partition in 0..3 {
            let log = self.dir.join(format!("data/{topic}-{partition}/00000000000000000000.log"));
            if !log.exists() {
                continue;
            }
            let mut dump = self.java.command();
            dump.args(SMALL).args(["-cp", &self.classes, "kafka.tools.DumpLogSegments"]);
            dump.arg("--print-data-log").arg("--files").arg(&log);
            let said = tools::finish(&mut dump, b"");
            assert_eq!(said.code, 0, "{}", said.stderr);
            for line in said.stdout.lines() {
                let Some((head, value)) = line.split_once(" payload: ") else { continue };
                let key = head.split_once(" key: ").map_or("", |(_, key)| key);
                found.push((partition, key.to_owned(), value.to_owned()));
            }
        }
        found
    }
}
