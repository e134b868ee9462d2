typedef struct {
    size_t size;
    const char *start;
} tag_bytes;

/* What is called of Proton; each function has its name there behind `pn_`. */
typedef struct {
    void *(*collector_peek)(void *collector);
    _Bool (*collector_pop)(void *collector);
    int (*event_type)(void *event);
    void *(*event_delivery)(void *event);
    void *(*event_link)(void *event);
    void *(*delivery)(void *link, tag_bytes tag);
    void *(*delivery_link)(void *delivery);
    _Bool (*delivery_readable)(void *delivery);
    _Bool (*delivery_partial)(void *delivery);
    size_t (*delivery_pending)(void *delivery);
    uint64_t (*delivery_remote_state)(void *delivery);
    void *(*delivery_remote)(void *delivery);
    void *(*delivery_local)(void *delivery);
    _Bool (*delivery_settled)(void *delivery);
    tag_bytes (*delivery_tag)(void *delivery);
    void (*delivery_update)(void *delivery, uint64_t state);
    void (*delivery_settle)(void *delivery);
    _Bool (*link_is_sender)(void *link);
    void *(*link_current)(void *link);
    ssize_t (*link_recv)(void *link, char *bytes, size_t size);
    ssize_t (*link_send)(void *link, const char *bytes, size_t size);
    _Bool (*link_advance)(void *link);
    void *(*link_remote_target)(void *link);
    int (*terminus_get_type)(void *terminus);
    void *(*disposition_data)(void *disposition);
    void (*data_clear)(void *data);
    ssize_t (*data_decode)(void *data, const char *bytes, size_t size);
    ssize_t (*data_encode)(void *data, char *bytes, size_t size);
    ssize_t (*transport_push)(void *transport, const char *bytes, size_t size);
} proton_functions;

extern proton_functions proton;

/* Whether the environment leaves the choice open: LEGATO_PURE, if set and not 0, forbids this module. */
_Bool wanted(void);

/* Whole messages that wait at the collector's head, read from `link` and advanced past; returns how many.

   Ends before the first event that is anything else, or for which there is no room. A message that came settled is
   settled. `ends` says where in `bytes` each ends; tags have 32 bytes each. */
int take_transfers(void *collector, int delivery_type, void *link, int count_max, size_t message_bytes_max,
                   char *bytes, size_t bytes_max, void *deliveries, uint32_t *ends, char *settled,
                   char *tags, char *tag_sizes);

/* Outcomes without fields that wait at the collector's head: any for what we sent, and for what came to us that its
   sender has settled it; returns how many.

   Nothing is settled. `states` has each state's code, 0 for none, with 0x80 if the peer settled. Ends before the first
   event that is anything else. */
int take_outcomes(void *collector, int delivery_type, int count_max, void *deliveries, char *states);

/* How many deliveries of `sent`, `count` of them, are what the collector's head and the events behind it say is accepted,
   one after the other, and all settled by the peer or none: `settled` says which. Nothing is settled by us. */
int take_accepted(void *collector, int delivery_type, void *sent, int count, _Bool *settled);

/* One event of a transaction. Its bytes are a message, the message's tag, and the transaction's id. */
typedef struct {
    uint32_t size;
    uint8_t tag_size, id_size;
    /* FLOW_EVENT 0: of a link that we send over; MESSAGE_EVENT 1; OUTCOME_EVENT 2, of a delivery of ours. */
    uint8_t kind;
    /* 1 if the peer settled, 2 if the transactional state has the outcome accepted, 4 if there is such a state. */
    uint8_t flags;
} transacted;

/* What transactions are made of and waits at the collector's head, of any links: whole messages in a transaction, whole
   messages to coordinators, outcomes in a transaction that are none or accepted, and flows; returns how many.

   Messages are read and advanced past, nothing is settled. Ends before the first event that is anything else, or for
   which there is no room. */
int take_transacted(void *collector, int delivery_type, int flow_type, int coordinator_type, int count_max, char *bytes,
                    size_t bytes_max, void *deliveries, void *links, transacted *records);

/* State `state`, whose fields are encoded in `fields`. */
void state_fields(void *delivery, uint64_t state, const char *fields, size_t size);

/* Send one message over a link; its delivery. */
void *send_one(void *link, const char *tag, size_t tag_size, const char *bytes, size_t size);

/* Settle deliveries, after `state` was stated if it is not 0. */
void settle_all(void *deliveries, int count, uint64_t state);

/* Send messages over a link, with tags of 8 bytes; `ends` says where in `bytes` each ends. */
void send_all(void *link, int count, const char *bytes, const uint32_t *ends, const char *tags, void *deliveries);

/* What of a connection's bytes the engine may have: it keeps what frames say besides messages, some 70 bytes for each
   element of a list, map or array, and ten bytes can claim any number of elements without bytes.

   `at` is where to go on in `data`; `*skip` is how much of a frame is still to come that was looked at or is a message.
   `*elements` is added up; looking ends where it is `elements_max` or more. Returns 0; 1 if the frame at `*end` has too
   many elements; 2 if it is no frame; 3 if it is not there yet; 4 if what it says cannot be decoded. Up to `*end` all was
   looked at. */
int inspect_frames(const char *data, size_t size, size_t at, uint64_t *skip, uint32_t frame_bytes_max,
                   uint32_t frame_elements_max, uint32_t empty_max, uint32_t *elements, uint32_t elements_max,
                   size_t *end);

/* Where from `at` on the first frame begins that is neither empty nor a transfer or disposition written the usual way;
   `size` or more if there is none, or where one begins of which less is there than its descriptor. */
size_t step_over_deliveries(const char *data, size_t size, size_t at);

/* The same, and over whole flows of at most `frame_bytes_max` bytes that are written the usual way, ask for no echo, and
   are of a session or of one of `links`: `count` links in order, each its channel, times 2^32, and its handle. */
size_t step_over_usual(const char *data, size_t size, size_t at, uint32_t frame_bytes_max, const uint64_t *links,
                       int count);

/* What messages of one layout have in common, and where they differ: see `codec/shapes.py`. Lengths may be 0. */
typedef struct {
    const char *prefix, *correlated, *middle, *tail, *forbidden, *forbidden_too, *last_bytes;
    size_t prefix_size, correlated_size, middle_size, tail_size, forbidden_size, forbidden_too_size, last_bytes_size;
    size_t id_at, id_end, middle_at, tail_at, tail_end, map_bytes_max;
    int last;
    int has_properties;
} layout;

/* How many messages from `first` on, of `count`, are of a layout: each ends in `bytes` where `ends` says. None ends with
   `last_bytes`, has one of the forbidden texts in its application properties, or an id that is not ASCII. Their ids are
   written to `ids`, one behind the other. */
int match_layout(const char *bytes, const uint32_t *ends, int first, int count, const layout *layout, char *ids);

/* Whether tags are numbers, big-endian and of at most 8 bytes, each one more than the one before and none above
   `number_max`; the first is written to `number`. */
_Bool consecutive(const char *tags, const char *sizes, int count, uint64_t number_max, uint64_t *number);

/* Bodies that pass the engine by: what it is given in their place is a token of 32 bytes, which says where the body is. */
typedef struct {
    /* How tokens begin: what nobody else knows. */
    char mark[16];
    /* Of the frame that is being received, how much is to come; of its size, what has come, and how many bytes that is. */
    uint64_t skip;
    uint32_t begun, begun_size;
    /* Whether more of a message may follow that frame. */
    _Bool is_begun;
    /* Bodies of so many bytes pass by. */
    uint32_t body_min;
    /* Whether a message that was read and not taken is larger than it might be; or is in part with the engine. */
    _Bool is_too_large, is_mixed;
    /* How many of those that were taken have passed by. */
    int taken_apart;
} bypass;

/* A way for a connection, with a mark of its own; whether there is one: the system may have no random numbers yet. */
_Bool begin_bypass(bypass *way, uint32_t body_min);

/* A body that passes the engine by. */
typedef struct {
    /* Of the bytes that it lies in, and where it begins there. */
    uint64_t number;
    uint32_t begin, size;
    /* Where its token begins in what the engine wrote. */
    size_t at;
} body;

/* Have the engine receive the next bytes of a connection, whose number is `number`, without the bodies of messages that
   are there as a whole, in one frame, of the usual form; returns how many these are. The engine does not have the last
   `*left` bytes: with them begins the frame of such a message, and they are to be given again with the rest of it. */
int receive_apart(bypass *way, void *transport, const char *data, size_t size, uint64_t number, size_t *left);

/* `take_transfers`, also of bodies that passed the engine by: `places` says where each is, those in `bytes` have the
   number 0, and `ends` adds up the sizes of all. It may have read the message at the collector's head and not taken it:
   then `is_too_large` or `is_mixed` is set. */
int take_apart(bypass *way, void *collector, int delivery_type, void *link, int count_max,
               size_t message_bytes_max, char *bytes, size_t bytes_max, void *deliveries, uint32_t *ends,
               char *settled, char *tags, char *tag_sizes, body *places);

/* Whether the last bytes of a message that was read are a token; `place` then says which body belongs there. */
_Bool is_apart(const bypass *way, const char *data, size_t size, body *place);

/* `send_all`, with tokens for bodies of `body_min` bytes and more; `number` is that of `bytes`. Returns their size. */
size_t send_apart(const bypass *way, void *link, int count, const char *bytes, const uint32_t *ends, const char *tags,
               void *deliveries, uint64_t number);

/* The same with tokens for all, of bodies by themselves: `number` is that of the first, and the others follow. */
void send_tokens(const bypass *way, void *link, int count, const uint32_t *sizes, const char *tags, void *deliveries,
                 uint64_t number);

/* Bodies whose tokens are in `data`, whole frames that the engine wrote, from `*at` on, no more than `count_max`; the
   frames' sizes become those with the bodies. Returns how many; `*at` is where to go on. */
int find_apart(const bypass *way, char *data, size_t size, size_t *at, body *found, int count_max);
