//! A network on which things go wrong.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use lock_mysql::{MySqlConfig, RowLockBackend};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, sleep_until};

use crate::support::{Fixture, patient};

/// A proxy that stands for the network. It lives on the runtime that made it.
#[derive(Clone)]
pub(crate) struct Proxy {
    address: String,
    /// Where new connections lead.
    server: Arc<Mutex<String>>,
    /// Where the next ones lead instead.
    next: Arc<Mutex<VecDeque<String>>>,
    faults: Arc<watch::Sender<Faults>>,
    dials: Arc<AtomicUsize>,
    requests: Arc<AtomicUsize>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Faults {
    /// Nothing gets through, and connections stay open.
    stalled: bool,
    /// New connections are ended at once.
    broken: bool,
    /// How often all connections were ended.
    breaks: u32,
    /// Connections up to this number say nothing more, and do not end either.
    mute: usize,
    /// How much later everything arrives, either way.
    delay: Duration,
}

impl Proxy {
    pub(crate) async fn of(fixture: &Fixture) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let faults = Arc::new(watch::Sender::new(Faults::default()));
        let dials = Arc::<AtomicUsize>::default();
        let requests = Arc::<AtomicUsize>::default();
        let server = Arc::new(Mutex::new(fixture.server.address().to_owned()));
        let (target, faults_there, counted) = (server.clone(), faults.clone(), dials.clone());
        let requests_there = requests.clone();
        let next = Arc::<Mutex<VecDeque<String>>>::default();
        let next_there = next.clone();
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let number = counted.fetch_add(1, Ordering::SeqCst) + 1;
                if !faults_there.borrow().broken {
                    let next = next_there.lock().unwrap().pop_front();
                    let target = next.unwrap_or_else(|| target.lock().unwrap().clone());
                    let served = serve(number, client, target, faults_there.subscribe(), requests_there.clone());
                    tokio::spawn(served);
                }
            }
        });
        Self {
            address,
            server,
            next,
            faults,
            dials,
            requests,
        }
    }

    pub(crate) fn config(&self, fixture: &Fixture) -> MySqlConfig {
        patient(&fixture.server.url_at(&self.address)).with_table(&fixture.table)
    }

    /// A client that waits for as long for an answer as a busy machine needs.
    pub(crate) fn patient(&self, fixture: &Fixture) -> RowLockBackend {
        RowLockBackend::new(self.config(fixture)).unwrap()
    }

    /// A client that waits 3 s for an answer.
    pub(crate) fn backend(&self, fixture: &Fixture) -> RowLockBackend {
        self.impatient(fixture, Duration::from_secs(3))
    }

    /// A client that waits so long for an answer, and soon gives up a server that is not reached.
    pub(crate) fn impatient(&self, fixture: &Fixture, response_timeout: Duration) -> RowLockBackend {
        let config = self.config(fixture).with_response_timeout(response_timeout);
        RowLockBackend::new(config.with_connect_timeout(MySqlConfig::DEFAULT_CONNECT_TIMEOUT)).unwrap()
    }

    /// Where clients dial.
    pub(crate) fn address(&self) -> &str {
        &self.address
    }

    /// Leads new connections to this server, as an address does that was moved. Those that are open stay where they are.
    pub(crate) fn lead_to(&self, fixture: &Fixture) {
        *self.server.lock().unwrap() = fixture.server.address().to_owned();
    }

    /// Leads the next connections to these servers, and those after them where they led before.
    pub(crate) fn lead_next_to(&self, fixtures: &[&Fixture]) {
        let addresses = fixtures.iter().map(|fixture| fixture.server.address().to_owned());
        *self.next.lock().unwrap() = addresses.collect();
    }

    /// How often clients have dialled.
    pub(crate) fn dials(&self) -> usize {
        self.dials.load(Ordering::SeqCst)
    }

    /// How many requests of clients have arrived.
    pub(crate) fn requests(&self) -> usize {
        self.requests.load(Ordering::SeqCst)
    }

    pub(crate) fn stall(&self) {
        self.faults.send_modify(|faults| faults.stalled = true);
    }

    /// Loses all connections, as a firewall does that forgets them: nobody is told. New ones are fine.
    pub(crate) fn lose_connections(&self) {
        let number = self.dials();
        self.faults.send_modify(|faults| faults.mute = number);
    }

    pub(crate) fn delay(&self, delay: Duration) {
        self.faults.send_modify(|faults| faults.delay = delay);
    }

    /// Ends all connections and refuses new ones.
    pub(crate) fn cut(&self) {
        self.faults.send_modify(|faults| {
            faults.broken = true;
            faults.breaks += 1;
        });
    }

    /// Lets everything through again. Ended connections stay ended.
    pub(crate) fn heal(&self) {
        self.faults.send_modify(|faults| {
            faults.stalled = false;
            faults.broken = false;
            faults.delay = Duration::ZERO;
        });
    }
}

async fn serve(
    number: usize,
    client: TcpStream,
    server: String,
    mut faults: watch::Receiver<Faults>,
    requests: Arc<AtomicUsize>,
) {
    let Ok(server) = TcpStream::connect(server).await else {
        return;
    };
    let breaks = faults.borrow().breaks;
    let ((from_client, to_client), (from_server, to_server)) = (client.into_split(), server.into_split());
    // When one way has ended, so has the other.
    tokio::select! {
        () = pump(number, from_client, to_server, faults.clone(), Some(requests)) => {}
        () = pump(number, from_server, to_client, faults.clone(), None) => {}
        _ = faults.wait_for(|faults| faults.breaks > breaks) => {}
    }
}

async fn pump(
    number: usize,
    mut from: impl AsyncReadExt + Unpin,
    mut to: impl AsyncWriteExt + Unpin,
    mut faults: watch::Receiver<Faults>,
    counted: Option<Arc<AtomicUsize>>,
) {
    let (sender, mut arrived) = mpsc::unbounded_channel();
    let reading = async move {
        let mut buffer = [0; 4096];
        while let Ok(read @ 1..) = from.read(&mut buffer).await {
            if let Some(counted) = &counted {
                counted.fetch_add(1, Ordering::SeqCst);
            }
            if sender.send((Instant::now(), buffer[..read].to_vec())).is_err() {
                return;
            }
        }
    };
    let writing = async {
        while let Some((at, message)) = arrived.recv().await {
            let delay = faults.borrow().delay;
            sleep_until(at + delay).await;
            let passes = |faults: &Faults| !faults.stalled && faults.mute < number;
            if faults.wait_for(passes).await.is_err() || to.write_all(&message).await.is_err() {
                return;
            }
        }
        // The end of a connection is one more thing that a mute one does not tell.
        let _ = faults.wait_for(|faults| faults.mute < number).await;
    };
    tokio::join!(reading, writing);
}
