//! Programs in Java for the tests to talk to: their jars with all that these need, by Maven, into `target/peers/jars`.

use crate::child::{quiet, watched};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

const DOWNLOAD_MAX: Duration = Duration::from_secs(300);

struct Jars {
    /// The folder's name.
    name: &'static str,
    /// Group, artifact and version of what is asked for; what they need comes along.
    artifacts: &'static [(&'static str, &'static str, &'static str)],
}

const PEERS: &[Jars] = &[
    Jars {
        name: "kafka",
        artifacts: &[
            ("org.apache.kafka", "kafka_2.13", "3.9.1"),
            ("org.apache.kafka", "kafka-tools", "3.9.1"),
        ],
    },
    Jars {
        name: "opensearch",
        artifacts: &[
            ("org.opensearch", "opensearch", "2.19.1"),
            ("org.opensearch.plugin", "transport-netty4-client", "2.19.1"),
            ("org.apache.logging.log4j", "log4j-core", "2.21.0"),
        ],
    },
];

/// Gets what is missing; nothing here fails a run.
pub fn get(dir: &Path, may_install: bool) {
    let home = dir.with_file_name("jars");
    for peer in PEERS.iter().filter(|p| !has_jars(&home.join(p.name))) {
        let name = peer.name;
        match () {
            () if !may_install => println!("no jars of {name}: not downloaded"),
            () if !quiet(Command::new("java").arg("-version")) => {
                println!("{name}: there is no java")
            }
            () if !quiet(Command::new("mvn").arg("-version")) => {
                println!("{name}: there is no mvn")
            }
            () => {
                if let Err(text) = peer.download(&home.join(name)) {
                    println!("{name}: {text}");
                }
            }
        }
    }
}

fn has_jars(dir: &Path) -> bool {
    fs::read_dir(dir).is_ok_and(|mut files| files.next().is_some())
}

impl Jars {
    /// All of them, or none.
    fn download(&self, to: &Path) -> Result<(), String> {
        let work = to.with_extension("new");
        let failed = |path: &Path, e: std::io::Error| format!("{}: {e}", path.display());
        fs::create_dir_all(&work).map_err(|e| failed(&work, e))?;
        let pom = work.join("pom.xml");
        fs::write(&pom, self.pom()).map_err(|e| failed(&pom, e))?;
        println!("downloading jars of {} into {}", self.name, to.display());
        let jars: PathBuf = work.join("jars");
        let mut command = Command::new("mvn");
        command.args(["-B", "-q", "dependency:copy-dependencies", "-DincludeScope=runtime"]);
        command.arg(format!("-DoutputDirectory={}", jars.display()));
        command.arg("-f").arg(&pom).stdin(Stdio::null()).stderr(Stdio::null());
        let mut last = String::new();
        watched(&mut command, DOWNLOAD_MAX, |line| last = line.to_owned())
            .map_err(|e| format!("mvn: {e}: {last}"))?;
        fs::rename(&jars, to).map_err(|e| failed(to, e))?;
        fs::remove_dir_all(&work).map_err(|e| failed(&work, e))
    }

    fn pom(&self) -> String {
        let dependency = |(group, artifact, version): &(&str, &str, &str)| {
            format!(
                "<dependency><groupId>{group}</groupId><artifactId>{artifact}</artifactId>\
                 <version>{version}</version></dependency>"
            )
        };
        let dependencies: String = self.artifacts.iter().map(dependency).collect();
        format!(
            "<project><modelVersion>4.0.0</modelVersion><groupId>peers</groupId><artifactId>{}</artifactId>\
             <version>1</version><packaging>pom</packaging><dependencies>{dependencies}</dependencies></project>",
            self.name
        )
    }
}
