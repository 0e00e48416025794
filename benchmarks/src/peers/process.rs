//! A process that answers each line with one.

use std::process::Stdio;
use std::time::Duration;

use benchmarks_load::Result;
use benchmarks_programs::Program;
use serde_json::{Map, Value};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};
use tokio::time::timeout;

#[derive(Debug)]
pub(crate) struct Process {
    program: Program,
    orders: ChildStdin,
    answers: Lines<BufReader<ChildStdout>>,
    versions: Map<String, Value>,
    /// An answer that came too late would be taken for the next one.
    is_lost: bool,
    _child: Child,
}

impl Process {
    pub(crate) async fn start(program: Program, patience: Duration) -> Result<Self> {
        let mut child = Command::from(program.command())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()?;
        let orders = child.stdin.take().ok_or("it has no input")?;
        let answers = child.stdout.take().ok_or("it has no output")?;
        let mut process = Self {
            program,
            orders,
            answers: BufReader::new(answers).lines(),
            versions: Map::new(),
            is_lost: false,
            _child: child,
        };
        let mut hello = process.answer(patience).await?;
        if let Some(Value::Object(versions)) = hello.remove("subjects") {
            process.versions = versions;
        }
        Ok(process)
    }

    /// Starts it anew where it did not answer.
    pub(crate) async fn revive(&mut self, patience: Duration) -> Result<()> {
        if self.is_lost {
            *self = Self::start(self.program.clone(), patience).await?;
        }
        Ok(())
    }

    pub(crate) fn program(&self) -> &Program {
        &self.program
    }

    pub(crate) fn version(&self, subject: &str) -> Option<String> {
        Some(self.versions.get(subject)?.as_str()?.to_owned())
    }

    pub(crate) async fn order(&mut self, order: &str, patience: Duration) -> Result<Map<String, Value>> {
        if self.is_lost {
            return Err("it has not answered before".into());
        }
        self.orders.write_all(format!("{order}\n").as_bytes()).await?;
        self.answer(patience).await
    }

    async fn answer(&mut self, patience: Duration) -> Result<Map<String, Value>> {
        self.is_lost = true;
        let Ok(line) = timeout(patience, self.answers.next_line()).await else {
            return Err(format!("no answer in {patience:?}").into());
        };
        let line = line?.ok_or("its process has ended")?;
        self.is_lost = false;
        let Value::Object(answer) = serde_json::from_str(&line)? else {
            return Err(format!("it answers what is no object: {line}").into());
        };
        match answer.get("error").and_then(Value::as_str) {
            Some(error) => Err(error.into()),
            None => Ok(answer),
        }
    }
}
