package rowcache

// Offers is how often a row is offered until the cache has it.
const Offers = offers
