//! A pool of worker threads, without async: each order is shipped once, however often it is in the queue, and however many
//! processes like this one run.
//!
//! ```text
//! cargo run --example worker_pool --features blocking
//! cargo run --example worker_pool --features blocking,redis -- redis://127.0.0.1:6379
//! ```

use std::collections::BTreeMap;
use std::error::Error;
use std::sync::Mutex;
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::Duration;

use polylock::FencingToken;
use polylock::blocking::{self, Guard, Locker};

const WORKERS: usize = 4;

fn main() -> Result<(), Box<dyn Error>> {
    let url = std::env::args().nth(1).unwrap_or("memory:".into());
    let locks = blocking::connect(&url)?; // one for all threads

    // Each order is in the queue twice, as after a retry.
    let (queue, orders) = channel();
    for order in (1..=8).chain(1..=8) {
        queue.send(order)?;
    }
    drop(queue);

    let (orders, shipped) = (Mutex::new(orders), Shipped::default());
    // Waits for the releases of dropped guards at its end.
    locks.scope(|locks| {
        thread::scope(|scope| {
            let workers: Vec<_> = (0..WORKERS)
                .map(|_| scope.spawn(|| work(locks, &orders, &shipped)))
                .collect();
            workers
                .into_iter()
                .try_for_each(|worker| worker.join().expect("a worker does not panic"))
        })
    })??;
    println!("all locks are released");
    Ok(())
}

fn work(locks: &Locker, orders: &Mutex<Receiver<u32>>, shipped: &Shipped) -> polylock::Result<()> {
    loop {
        let next = orders.lock().expect("no worker panics").try_recv();
        let Ok(order) = next else { return Ok(()) };
        let lock = locks.lock(format!("orders/{order}"));
        // Renewed meanwhile by polylock's own thread, whatever this one does.
        lock.with_within(Duration::from_secs(30), |held| ship(order, held, shipped))??;
    }
}

fn ship(order: u32, held: &Guard, shipped: &Shipped) -> polylock::Result<()> {
    if shipped.contains(order) {
        println!("order {order} was shipped before");
        return Ok(());
    }
    thread::sleep(Duration::from_millis(20)); // packs it
    held.check()?; // nothing stops a thread, so look before what must not be done twice
    shipped.add(order, held.token());
    println!("order {order} is shipped, fencing token {}", held.token());
    Ok(())
}

/// Stands for a database.
#[derive(Default)]
struct Shipped(Mutex<BTreeMap<u32, FencingToken>>);

impl Shipped {
    fn contains(&self, order: u32) -> bool {
        self.0.lock().expect("no worker panics").contains_key(&order)
    }

    fn add(&self, order: u32, token: FencingToken) {
        self.0.lock().expect("no worker panics").insert(order, token);
    }
}
