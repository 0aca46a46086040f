//! TPC-W's fourteen interactions, as the pages they read and write.

use std::fs::File;
use std::io::Read;

use super::super::pages::{Open, PAGE};
use super::store::Table;
use super::{picture, thumb};
use crate::fsbench::rng::mix;
use crate::fsbench::{BenchError, Rng, Site};

/// An interaction with its share of each mix in per cent: browsing, shopping, ordering.
pub(super) struct Interaction {
    pub(super) name: &'static str,
    pub(super) share: [f64; 3],
}

const fn interaction(name: &'static str, share: [f64; 3]) -> Interaction {
    Interaction { name, share }
}

/// All of them, in TPC-W's order.
pub(super) const INTERACTIONS: [&Interaction; 14] = [
    &interaction("home", [29.0, 16.0, 9.12]),
    &interaction("new products", [11.0, 5.0, 0.46]),
    &interaction("best sellers", [11.0, 5.0, 0.46]),
    &interaction("product detail", [21.0, 17.0, 12.35]),
    &interaction("search request", [12.0, 20.0, 14.53]),
    &interaction("search results", [11.0, 17.0, 13.08]),
    &interaction("shopping cart", [2.0, 11.6, 13.53]),
    &interaction("customer registration", [0.82, 3.0, 12.86]),
    &interaction("buy request", [0.75, 2.6, 12.73]),
    &interaction("buy confirm", [0.69, 1.2, 10.18]),
    &interaction("order inquiry", [0.30, 0.75, 0.25]),
    &interaction("order display", [0.25, 0.66, 0.22]),
    &interaction("admin request", [0.10, 0.10, 0.12]),
    &interaction("admin confirm", [0.09, 0.09, 0.11]),
];

/// Subjects books belong to.
const SUBJECTS: u64 = 24;
/// Books that a list shows.
const LIST: u64 = 50;
/// Orders that best sellers are counted in.
const RECENT_ORDERS: u64 = 3333;

/// The shop while a pass runs.
pub(super) struct Shop<'a> {
    site: &'a Site,
    db: &'a Open<'a>,
    customers: u64,
    items: u64,
}

/// A customer's visit.
pub(super) struct User {
    customer: u64,
    buffer: Vec<u8>,
    read: u64,
    written: u64,
    changed: u64,
}

impl User {
    pub(super) fn new(shop: &Shop<'_>, rng: &mut Rng) -> User {
        let customer = rng.nurand(nurand_a(shop.customers), 0, shop.customers - 1);
        // A picture is read in pieces of this, too.
        User { customer, buffer: vec![0; 64 << 10], read: 0, written: 0, changed: 0 }
    }
}

/// The constant of NURand for so many numbers: a power of two less one, a few times smaller.
fn nurand_a(n: u64) -> u64 {
    (n / 5).max(1).next_power_of_two() - 1
}

impl<'a> Shop<'a> {
    pub(super) fn new(site: &'a Site, db: &'a Open<'a>, customers: u64, items: u64) -> Shop<'a> {
        Shop { site, db, customers, items }
    }

    /// Does an interaction; bytes read and written.
    pub(super) fn interact(
        &self,
        which: usize,
        user: &mut User,
        rng: &mut Rng,
    ) -> Result<(u64, u64), BenchError> {
        (user.read, user.written, user.changed) = (0, 0, 0);
        let customer = user.customer;
        match INTERACTIONS[which].name {
            "home" => {
                self.customer(user, customer)?;
                self.promotion(user, rng)?;
            }
            "new products" => self.subject(user, rng)?,
            "best sellers" => {
                let (first, pages) = self.db.tail(Table::OrderLine, 3 * RECENT_ORDERS);
                self.pages(user, Table::OrderLine, first, pages)?;
                for _ in 0..LIST.min(self.items) {
                    self.item(user, self.popular(rng))?;
                }
                self.thumbs(user, rng)?;
            }
            "product detail" => {
                let item = self.popular(rng);
                self.item(user, item)?;
                self.author(user, item)?;
                self.picture(user, &picture(item))?;
            }
            "search request" => self.promotion(user, rng)?,
            "search results" => {
                match rng.below(3) {
                    0 => {
                        let (first, pages) = self.db.all(Table::Author);
                        self.pages(user, Table::Author, first, pages)?;
                        for _ in 0..LIST.min(self.items) {
                            self.item(user, rng.below(self.items))?;
                        }
                    }
                    1 => {
                        let (first, pages) = self.db.all(Table::Item);
                        self.pages(user, Table::Item, first, pages)?;
                    }
                    _ => return self.subject(user, rng).map(|()| (user.read, user.written)),
                }
                self.thumbs(user, rng)?;
            }
            "shopping cart" => {
                let cart = mix(customer) % self.db.rows(Table::Cart);
                self.update(user, Table::Cart, cart)?;
                for _ in 0..rng.between(1, 2) {
                    self.update(user, Table::CartLine, 3 * cart + rng.below(3))?;
                }
                self.commit(user)?;
                for _ in 0..rng.between(1, 3) {
                    self.item(user, self.popular(rng))?;
                }
                self.thumbs(user, rng)?;
            }
            "customer registration" => self.customer(user, customer)?,
            "buy request" => {
                self.customer_by_name(user, customer)?;
                self.address(user, customer)?;
                self.update(user, Table::Customer, customer)?;
                self.commit(user)?;
            }
            "buy confirm" => {
                self.insert(user, Table::Orders, Some(Table::OrdersKey))?;
                self.update(user, Table::OrdersCustomer, customer * 9 / 10)?;
                let lines = rng.between(1, 5);
                for _ in 0..lines {
                    self.insert(user, Table::OrderLine, Some(Table::OrderLineKey))?;
                    let item = self.popular(rng);
                    self.rows(user, Table::ItemKey, item)?;
                    self.update(user, Table::Item, item)?;
                }
                self.insert(user, Table::Payments, None)?;
                self.commit(user)?;
            }
            "order inquiry" => {
                self.customer_by_name(user, customer)?;
                self.order(user, customer)?;
            }
            "order display" => {
                let order = self.order(user, customer)?;
                self.rows(user, Table::OrderLineKey, 3 * order)?;
                self.rows(user, Table::OrderLine, 3 * order)?;
                for _ in 0..3 {
                    self.item(user, self.popular(rng))?;
                }
                self.address(user, customer)?;
                self.address(user, customer + self.customers)?;
            }
            "admin request" => {
                let item = rng.below(self.items);
                self.item(user, item)?;
                self.picture(user, &picture(item))?;
            }
            _ => {
                let item = rng.below(self.items);
                self.rows(user, Table::ItemKey, item)?;
                self.update(user, Table::Item, item)?;
                self.commit(user)?;
            }
        }
        Ok((user.read, user.written))
    }

    fn popular(&self, rng: &mut Rng) -> u64 {
        rng.nurand(nurand_a(self.items), 0, self.items - 1)
    }

    fn rows(&self, user: &mut User, table: Table, row: u64) -> Result<(), BenchError> {
        user.read += self.db.read_row(table, row, &mut user.buffer)?;
        Ok(())
    }

    fn pages(&self, user: &mut User, table: Table, first: u64, pages: u64) -> Result<(), BenchError> {
        user.read += self.db.read_pages(table, first, pages, &mut user.buffer)?;
        Ok(())
    }

    fn update(&self, user: &mut User, table: Table, row: u64) -> Result<(), BenchError> {
        // Orders and their lines grow behind what their indexes hold; no row is beyond a table's own.
        let row = row.min(self.db.rows(table).saturating_sub(1));
        let (read, written) = self.db.update_row(table, row, &mut user.buffer)?;
        user.read += read;
        user.written += written;
        user.changed += 1;
        Ok(())
    }

    /// A row at the end of a table, and an entry at the end of its index.
    fn insert(&self, user: &mut User, table: Table, key: Option<Table>) -> Result<(), BenchError> {
        for table in [Some(table), key].into_iter().flatten() {
            let (_, written) = self.db.insert_row(table, &mut user.buffer)?;
            user.written += written;
            user.changed += 1;
        }
        Ok(())
    }

    fn commit(&self, user: &mut User) -> Result<(), BenchError> {
        user.written += self.db.commit(user.changed, &mut user.buffer)?;
        user.changed = 0;
        Ok(())
    }

    fn customer(&self, user: &mut User, customer: u64) -> Result<(), BenchError> {
        self.rows(user, Table::CustomerKey, customer)?;
        self.rows(user, Table::Customer, customer)
    }

    fn customer_by_name(&self, user: &mut User, customer: u64) -> Result<(), BenchError> {
        // Names are in another order than numbers.
        self.rows(user, Table::CustomerName, mix(customer) % self.customers)?;
        self.rows(user, Table::Customer, customer)
    }

    fn address(&self, user: &mut User, address: u64) -> Result<(), BenchError> {
        self.rows(user, Table::AddressKey, address)?;
        self.rows(user, Table::Address, address)?;
        self.rows(user, Table::Country, mix(address) % 92)
    }

    /// A customer's last order; its number.
    fn order(&self, user: &mut User, customer: u64) -> Result<u64, BenchError> {
        let order = customer * 9 / 10;
        self.rows(user, Table::OrdersCustomer, order)?;
        self.rows(user, Table::Orders, order)?;
        Ok(order)
    }

    fn item(&self, user: &mut User, item: u64) -> Result<(), BenchError> {
        self.rows(user, Table::ItemKey, item)?;
        self.rows(user, Table::Item, item)
    }

    fn author(&self, user: &mut User, item: u64) -> Result<(), BenchError> {
        let author = mix(item) % self.db.rows(Table::Author);
        self.rows(user, Table::AuthorKey, author)?;
        self.rows(user, Table::Author, author)
    }

    /// A promoted book, five related ones, and their pictures.
    fn promotion(&self, user: &mut User, rng: &mut Rng) -> Result<(), BenchError> {
        let item = self.popular(rng);
        self.item(user, item)?;
        let related: Vec<u64> = (1..=5).map(|i| mix(item + i) % self.items).collect();
        for item in &related {
            self.item(user, *item)?;
        }
        related.iter().try_for_each(|item| self.picture(user, &thumb(*item)))
    }

    /// All books of a subject, to be sorted by date; pictures of a few.
    fn subject(&self, user: &mut User, rng: &mut Rng) -> Result<(), BenchError> {
        let subject = rng.below(SUBJECTS);
        let each = self.items.div_ceil(SUBJECTS);
        let mut leaf = subject * each;
        while leaf < ((subject + 1) * each).min(self.items) {
            self.rows(user, Table::ItemSubject, leaf)?;
            // An index page, then the rows it names: every 24th of the table.
            for entry in leaf..(leaf + 280).min((subject + 1) * each) {
                let item = (entry - subject * each) * SUBJECTS + subject;
                if item < self.items {
                    self.rows(user, Table::Item, item)?;
                }
            }
            leaf += 280;
        }
        self.thumbs(user, rng)
    }

    fn thumbs(&self, user: &mut User, rng: &mut Rng) -> Result<(), BenchError> {
        (0..5).try_for_each(|_| self.picture(user, &thumb(self.popular(rng))))
    }

    fn picture(&self, user: &mut User, name: &str) -> Result<(), BenchError> {
        let path = self.site.path(name);
        let read = |buffer: &mut [u8]| {
            let mut file = File::open(&path)?;
            let mut total = 0;
            loop {
                match file.read(buffer)? {
                    0 => return Ok(total),
                    n => total += n as u64,
                }
            }
        };
        user.read += read(&mut user.buffer).map_err(BenchError::at(&path, "reading it"))?;
        Ok(())
    }
}

const _: () = assert!(64 << 10 >= PAGE, "a page fits into a user's buffer");
