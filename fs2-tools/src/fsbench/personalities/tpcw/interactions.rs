//! TPC-W's fourteen interactions, as the pages they read and write.

use super::super::pages::Open;
use super::super::visits::{Acts, Visitor};
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

/// Bytes of a piece of a picture, as it is read.
const BUFFER_BYTES: u64 = 64 << 10;

/// Customers before one browser.
pub(in super::super) struct User<'a> {
    acts: Acts<'a>,
    customers: u64,
    items: u64,
    customer: u64,
}

/// The constant of NURand for so many numbers: a power of two less one, a few times smaller.
fn nurand_a(n: u64) -> u64 {
    (n / 5).max(1).next_power_of_two() - 1
}

impl<'a> User<'a> {
    pub(super) fn new(
        site: &'a Site,
        db: &'a Open<'a>,
        customers: u64,
        items: u64,
        rng: &mut Rng,
    ) -> User<'a> {
        let mut this = User { acts: Acts::new(site, db, BUFFER_BYTES), customers, items, customer: 0 };
        this.change(rng);
        this
    }

    fn popular(&self, rng: &mut Rng) -> u64 {
        rng.nurand(nurand_a(self.items), 0, self.items - 1)
    }

    fn customer(&mut self, customer: u64) -> Result<(), BenchError> {
        self.acts.row(Table::CustomerKey, customer)?;
        self.acts.row(Table::Customer, customer)
    }

    fn customer_by_name(&mut self, customer: u64) -> Result<(), BenchError> {
        // Names are in another order than numbers.
        self.acts.row(Table::CustomerName, mix(customer) % self.customers)?;
        self.acts.row(Table::Customer, customer)
    }

    fn address(&mut self, address: u64) -> Result<(), BenchError> {
        self.acts.row(Table::AddressKey, address)?;
        self.acts.row(Table::Address, address)?;
        self.acts.row(Table::Country, mix(address) % 92)
    }

    /// A customer's last order; its number.
    fn order(&mut self, customer: u64) -> Result<u64, BenchError> {
        let order = customer * 9 / 10;
        self.acts.row(Table::OrdersCustomer, order)?;
        self.acts.row(Table::Orders, order)?;
        Ok(order)
    }

    fn item(&mut self, item: u64) -> Result<(), BenchError> {
        self.acts.row(Table::ItemKey, item)?;
        self.acts.row(Table::Item, item)
    }

    fn author(&mut self, item: u64) -> Result<(), BenchError> {
        let author = mix(item) % self.acts.db().rows(Table::Author);
        self.acts.row(Table::AuthorKey, author)?;
        self.acts.row(Table::Author, author)
    }

    /// A promoted book, five related ones, and their pictures.
    fn promotion(&mut self, rng: &mut Rng) -> Result<(), BenchError> {
        let item = self.popular(rng);
        self.item(item)?;
        let related: Vec<u64> = (1..=5).map(|i| mix(item + i) % self.items).collect();
        for item in &related {
            self.item(*item)?;
        }
        related.iter().try_for_each(|item| self.picture(&thumb(*item)))
    }

    /// All books of a subject, to be sorted by date; pictures of a few.
    fn subject(&mut self, rng: &mut Rng) -> Result<(), BenchError> {
        let subject = rng.below(SUBJECTS);
        let each = self.items.div_ceil(SUBJECTS);
        let mut leaf = subject * each;
        while leaf < ((subject + 1) * each).min(self.items) {
            self.acts.row(Table::ItemSubject, leaf)?;
            // An index page, then the rows it names: every 24th of the table.
            for entry in leaf..(leaf + 280).min((subject + 1) * each) {
                let item = (entry - subject * each) * SUBJECTS + subject;
                if item < self.items {
                    self.acts.row(Table::Item, item)?;
                }
            }
            leaf += 280;
        }
        self.thumbs(rng)
    }

    fn thumbs(&mut self, rng: &mut Rng) -> Result<(), BenchError> {
        (0..5).try_for_each(|_| self.picture(&thumb(self.popular(rng))))
    }

    fn picture(&mut self, name: &str) -> Result<(), BenchError> {
        self.acts.file(name).map(|_| ())
    }
}

impl Visitor for User<'_> {
    fn change(&mut self, rng: &mut Rng) {
        self.customer = rng.nurand(nurand_a(self.customers), 0, self.customers - 1);
    }

    fn visit(&mut self, which: usize, rng: &mut Rng) -> Result<(u64, u64), BenchError> {
        let customer = self.customer;
        match INTERACTIONS[which].name {
            "home" => {
                self.customer(customer)?;
                self.promotion(rng)?;
            }
            "new products" => self.subject(rng)?,
            "best sellers" => {
                let pages = self.acts.db().tail(Table::OrderLine, 3 * RECENT_ORDERS);
                self.acts.pages(Table::OrderLine, pages)?;
                for _ in 0..LIST.min(self.items) {
                    self.item(self.popular(rng))?;
                }
                self.thumbs(rng)?;
            }
            "product detail" => {
                let item = self.popular(rng);
                self.item(item)?;
                self.author(item)?;
                self.picture(&picture(item))?;
            }
            "search request" => self.promotion(rng)?,
            "search results" => {
                match rng.below(3) {
                    0 => {
                        let pages = self.acts.db().all(Table::Author);
                        self.acts.pages(Table::Author, pages)?;
                        for _ in 0..LIST.min(self.items) {
                            self.item(rng.below(self.items))?;
                        }
                    }
                    1 => {
                        let pages = self.acts.db().all(Table::Item);
                        self.acts.pages(Table::Item, pages)?;
                    }
                    _ => return self.subject(rng).map(|()| self.acts.take()),
                }
                self.thumbs(rng)?;
            }
            "shopping cart" => {
                let cart = mix(customer) % self.acts.db().rows(Table::Cart);
                self.acts.update(Table::Cart, cart)?;
                for _ in 0..rng.between(1, 2) {
                    self.acts.update(Table::CartLine, 3 * cart + rng.below(3))?;
                }
                self.acts.commit()?;
                for _ in 0..rng.between(1, 3) {
                    self.item(self.popular(rng))?;
                }
                self.thumbs(rng)?;
            }
            "customer registration" => self.customer(customer)?,
            "buy request" => {
                self.customer_by_name(customer)?;
                self.address(customer)?;
                self.acts.update(Table::Customer, customer)?;
                self.acts.commit()?;
            }
            "buy confirm" => {
                self.acts.insert([Table::Orders, Table::OrdersKey])?;
                self.acts.update(Table::OrdersCustomer, customer * 9 / 10)?;
                let lines = rng.between(1, 5);
                for _ in 0..lines {
                    self.acts.insert([Table::OrderLine, Table::OrderLineKey])?;
                    let item = self.popular(rng);
                    self.acts.row(Table::ItemKey, item)?;
                    self.acts.update(Table::Item, item)?;
                }
                self.acts.insert([Table::Payments])?;
                self.acts.commit()?;
            }
            "order inquiry" => {
                self.customer_by_name(customer)?;
                self.order(customer)?;
            }
            "order display" => {
                let order = self.order(customer)?;
                self.acts.row(Table::OrderLineKey, 3 * order)?;
                self.acts.row(Table::OrderLine, 3 * order)?;
                for _ in 0..3 {
                    self.item(self.popular(rng))?;
                }
                self.address(customer)?;
                self.address(customer + self.customers)?;
            }
            "admin request" => {
                let item = rng.below(self.items);
                self.item(item)?;
                self.picture(&picture(item))?;
            }
            _ => {
                let item = rng.below(self.items);
                self.acts.row(Table::ItemKey, item)?;
                self.acts.update(Table::Item, item)?;
                self.acts.commit()?;
            }
        }
        Ok(self.acts.take())
    }
}
