/* Runs of deliveries through Proton's engine in one call: what `deliveries.py` and `link.py` do one by one. */

#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/types.h>
#include <unistd.h>

#include "_batch.h"

enum {
    TAG_BYTES_MAX = 32,
    SENT_TAG_BYTES = 8,
    RECEIVED = 0x23,
    ACCEPTED = 0x24,
    RELEASED = 0x26,
    TRANSACTIONAL = 0x34,
    SETTLED = 0x80,
    TOKEN_BYTES = 32,
};

proton_functions proton;

_Bool wanted(void)
{
    const char *pure = getenv("LEGATO_PURE");
    return pure == NULL || *pure == '\0' || strcmp(pure, "0") == 0;
}

/* The delivery that the collector's head is about; NULL if it is about something else. */
static void *head(void *collector, int delivery_type)
{
    void *event = proton.collector_peek(collector);
    if (event == NULL || proton.event_type(event) != delivery_type)
        return NULL;
    return proton.event_delivery(event);
}

/* As `take_transfers`; with a way, as `take_apart`. */
static int take(bypass *way, void *collector, int delivery_type, void *link, int count_max, size_t message_bytes_max,
                char *bytes, size_t bytes_max, void *deliveries, uint32_t *ends, char *settled, char *tags,
                char *tag_sizes, body *places)
{
    void **taken = deliveries;
    size_t used = 0, end = 0;
    int count = 0;
    while (count < count_max) {
        void *delivery = head(collector, delivery_type);
        if (delivery == NULL || !proton.delivery_readable(delivery) || proton.delivery_link(delivery) != link)
            break;
        if (proton.delivery_partial(delivery) || proton.delivery_remote_state(delivery) == TRANSACTIONAL)
            break;
        size_t size = proton.delivery_pending(delivery);
        if (size > message_bytes_max || size > bytes_max - used)
            break;
        tag_bytes tag = proton.delivery_tag(delivery);
        if (tag.size > TAG_BYTES_MAX)
            break;
        /* The end of an empty message is reported as an error, and so is an aborted one: only the engine knows. */
        if (size == 0 || proton.link_recv(link, bytes + used, size) != (ssize_t)size)
            break;
        if (way != NULL) {
            body *place = &places[count];
            if (is_apart(way, bytes + used, size, place)) {
                way->is_mixed = size != TOKEN_BYTES;
                way->is_too_large = place->size > message_bytes_max;
                if (way->is_mixed || way->is_too_large)
                    break;
                size = place->size;
                way->taken_apart++;
            } else {
                place->number = 0;
                place->begin = (uint32_t)used;
                place->size = (uint32_t)size;
                used += size;
            }
        } else {
            used += size;
        }
        end += size;
        if (tags != NULL) {
            tag_sizes[count] = (char)tag.size;
            if (tag.size > 0)
                memcpy(tags + (size_t)count * TAG_BYTES_MAX, tag.start, tag.size);
        }
        taken[count] = delivery;
        ends[count] = (uint32_t)end;
        settled[count] = proton.delivery_settled(delivery);
        proton.link_advance(link);
        if (settled[count])
            proton.delivery_settle(delivery);
        proton.collector_pop(collector);
        count++;
    }
    return count;
}

int take_transfers(void *collector, int delivery_type, void *link, int count_max, size_t message_bytes_max,
                   char *bytes, size_t bytes_max, void *deliveries, uint32_t *ends, char *settled,
                   char *tags, char *tag_sizes)
{
    return take(NULL, collector, delivery_type, link, count_max, message_bytes_max, bytes, bytes_max, deliveries, ends,
                settled, tags, tag_sizes, NULL);
}

int take_apart(bypass *way, void *collector, int delivery_type, void *link, int count_max, size_t message_bytes_max,
               char *bytes, size_t bytes_max, void *deliveries, uint32_t *ends, char *settled, char *tags,
               char *tag_sizes, body *places)
{
    way->is_too_large = way->is_mixed = 0;
    way->taken_apart = 0;
    return take(way, collector, delivery_type, link, count_max, message_bytes_max, bytes, bytes_max, deliveries, ends,
                settled, tags, tag_sizes, places);
}

int take_outcomes(void *collector, int delivery_type, int count_max, void *deliveries, char *states)
{
    void **taken = deliveries;
    int count = 0;
    while (count < count_max) {
        void *delivery = head(collector, delivery_type);
        if (delivery == NULL)
            break;
        void *link = proton.delivery_link(delivery);
        /* What we have not sent: the peer's own, over a link that sends. */
        if (proton.link_current(link) == delivery
            || (proton.link_is_sender(link) && proton.delivery_pending(delivery) > 0))
            break;
        _Bool settled = proton.delivery_settled(delivery);
        /* Of what came to us only this is news: the sender has heard our outcome. */
        if (!proton.link_is_sender(link) && (!settled || proton.delivery_readable(delivery)))
            break;
        uint64_t state = proton.delivery_remote_state(delivery);
        if (state != 0 && state != ACCEPTED && state != RELEASED && state != RECEIVED)
            break;
        proton.collector_pop(collector);
        taken[count] = delivery;
        states[count] = (char)(state | (settled ? SETTLED : 0));
        count++;
    }
    return count;
}

int take_accepted(void *collector, int delivery_type, void *sent, int count, _Bool *settled)
{
    void **expected = sent;
    int taken = 0;
    for (; taken < count; taken++) {
        void *delivery = head(collector, delivery_type);
        if (delivery == NULL || delivery != expected[taken] || proton.delivery_remote_state(delivery) != ACCEPTED)
            break;
        _Bool is_settled = proton.delivery_settled(delivery);
        if (taken == 0)
            *settled = is_settled;
        else if (is_settled != *settled)
            break;
        proton.collector_pop(collector);
    }
    return taken;
}

enum {
    FLOW_EVENT = 0,
    MESSAGE_EVENT = 1,
    OUTCOME_EVENT = 2,
    IS_SETTLED = 1,
    IS_ACCEPTED = 2,
    IS_TRANSACTIONAL = 4,
    STATE_BYTES_MAX = 128,
    STATE_ID = 11,
    STATE_LIST = 0xD0,
    STATE_BINARY = 0xA0,
};

/* Write the id of a delivery's transactional state to `id`; 0 if the state is not of the usual form. */
static int read_transactional(void *delivery, char *id, transacted *record)
{
    static const char accepted[] = {0x00, 0x53, ACCEPTED, 0x45};
    char state[STATE_BYTES_MAX];
    ssize_t size = proton.data_encode(proton.disposition_data(proton.delivery_remote(delivery)), state, sizeof state);
    if (size <= STATE_ID || size > STATE_BYTES_MAX)
        return 0;
    if ((unsigned char)state[0] != STATE_LIST || (unsigned char)state[STATE_ID - 2] != STATE_BINARY)
        return 0;
    size_t id_size = (unsigned char)state[STATE_ID - 1];
    if (id_size > (size_t)size - STATE_ID)
        return 0;
    size_t rest = (size_t)size - STATE_ID - id_size;
    if (rest == sizeof accepted && memcmp(state + STATE_ID + id_size, accepted, sizeof accepted) == 0)
        record->flags |= IS_ACCEPTED;
    else if (rest > 0)
        return 0;
    memcpy(id, state + STATE_ID, id_size);
    record->id_size = (uint8_t)id_size;
    record->flags |= IS_TRANSACTIONAL;
    return 1;
}

/* Read a message at the collector's head to `bytes`, where there is room for what is beside it; 0 if it is not usual. */
static int take_message(void *delivery, void *link, int coordinator_type, char *bytes, size_t bytes_max,
                        transacted *record)
{
    _Bool has_state = proton.delivery_remote_state(delivery) == TRANSACTIONAL;
    if (!has_state && (proton.delivery_remote_state(delivery) != 0
                       || proton.terminus_get_type(proton.link_remote_target(link)) != coordinator_type))
        return 0;
    if (proton.delivery_partial(delivery))
        return 0;
    size_t size = proton.delivery_pending(delivery);
    tag_bytes tag = proton.delivery_tag(delivery);
    if (size == 0 || size > bytes_max || tag.size > TAG_BYTES_MAX)
        return 0;
    if (has_state && !read_transactional(delivery, bytes + size + tag.size, record))
        return 0;
    /* Of a message that was aborted nothing is read. */
    if (proton.link_recv(link, bytes, size) != (ssize_t)size)
        return 0;
    if (tag.size > 0)
        memcpy(bytes + size, tag.start, tag.size);
    record->size = (uint32_t)size;
    record->tag_size = (uint8_t)tag.size;
    record->kind = MESSAGE_EVENT;
    proton.link_advance(link);
    return 1;
}

/* Read the outcome at the collector's head; 0 if it is not usual, or not of what we have sent. */
static int take_outcome(void *delivery, void *link, char *bytes, transacted *record)
{
    if (proton.delivery_remote_state(delivery) != TRANSACTIONAL || !proton.link_is_sender(link))
        return 0;
    if (proton.link_current(link) == delivery || proton.delivery_pending(delivery) > 0)
        return 0;
    record->kind = OUTCOME_EVENT;
    return read_transactional(delivery, bytes, record);
}

int take_transacted(void *collector, int delivery_type, int flow_type, int coordinator_type, int count_max, char *bytes,
                    size_t bytes_max, void *deliveries, void *links, transacted *records)
{
    void **taken = deliveries, **of = links;
    size_t used = 0, beside = TAG_BYTES_MAX + STATE_BYTES_MAX;
    int count = 0;
    while (count < count_max && bytes_max - used >= beside) {
        void *event = proton.collector_peek(collector);
        if (event == NULL)
            break;
        int type = proton.event_type(event);
        transacted *record = &records[count];
        memset(record, 0, sizeof *record);
        if (type == flow_type) {
            void *link = proton.event_link(event);
            /* The credit of what we receive is counted with its messages, which were advanced past already. */
            if (!proton.link_is_sender(link))
                break;
            taken[count] = NULL;
            of[count] = link;
        } else if (type == delivery_type) {
            void *delivery = proton.event_delivery(event), *link = proton.delivery_link(delivery);
            int is_taken = proton.delivery_readable(delivery)
                               ? take_message(delivery, link, coordinator_type, bytes + used,
                                              bytes_max - used - beside, record)
                               : take_outcome(delivery, link, bytes + used, record);
            if (!is_taken)
                break;
            if (proton.delivery_settled(delivery))
                record->flags |= IS_SETTLED;
            taken[count] = delivery;
            of[count] = link;
            used += (size_t)record->size + record->tag_size + record->id_size;
        } else {
            break;
        }
        proton.collector_pop(collector);
        count++;
    }
    return count;
}

void state_fields(void *delivery, uint64_t state, const char *fields, size_t size)
{
    void *data = proton.disposition_data(proton.delivery_local(delivery));
    proton.data_clear(data);
    proton.data_decode(data, fields, size);
    proton.delivery_update(delivery, state);
}

void *send_one(void *link, const char *tag, size_t tag_size, const char *bytes, size_t size)
{
    tag_bytes of = {tag_size, tag};
    void *delivery = proton.delivery(link, of);
    proton.link_send(link, bytes, size);
    proton.link_advance(link);
    return delivery;
}

void settle_all(void *deliveries, int count, uint64_t state)
{
    void **each = deliveries;
    for (int i = 0; i < count; i++) {
        if (state != 0)
            proton.delivery_update(each[i], state);
        proton.delivery_settle(each[i]);
    }
}

void send_all(void *link, int count, const char *bytes, const uint32_t *ends, const char *tags, void *deliveries)
{
    void **made = deliveries;
    uint32_t start = 0;
    for (int i = 0; i < count; i++) {
        tag_bytes tag = {SENT_TAG_BYTES, tags + (size_t)i * SENT_TAG_BYTES};
        made[i] = proton.delivery(link, tag);
        proton.link_send(link, bytes + start, ends[i] - start);
        proton.link_advance(link);
        start = ends[i];
    }
}

enum {
    FRAME_HEADER = 8,
    DEPTH = 32,
    NO_FRAME = 2,
    UNFINISHED = 3,
    WALK_MALFORMED = 4,
    WALK_TOO_MUCH = 1,
};

typedef struct {
    const unsigned char *data;
    size_t end;
    uint32_t elements;
    uint32_t empty;
} walk;

static uint32_t u32(const unsigned char *at)
{
    return (uint32_t)at[0] << 24 | (uint32_t)at[1] << 16 | (uint32_t)at[2] << 8 | at[3];
}

/* The bytes of a value of a fixed size behind its constructor; -1 if its size is written there. */
static int fixed_size(unsigned char code)
{
    switch (code >> 4) {
    case 4: return 0;
    case 5: return 1;
    case 6: return 2;
    case 7: return 4;
    case 8: return 8;
    case 9: return 16;
    }
    return -1;
}

static int walk_value(walk *w, size_t *at, int depth);

/* What lies behind the constructor `code`. */
static int walk_body(walk *w, unsigned char code, size_t *at, int depth)
{
    int size = fixed_size(code);
    if (size >= 0) {
        *at += (size_t)size;
        return *at <= w->end ? 0 : WALK_MALFORMED;
    }
    int kind = code >> 4;
    int width = kind & 1 ? 4 : 1;
    if (kind < 0xA || *at + (size_t)width > w->end)
        return WALK_MALFORMED;
    size_t length = width == 4 ? u32(w->data + *at) : w->data[*at];
    size_t start = *at + (size_t)width;
    if (length > w->end - start)
        return WALK_MALFORMED;
    *at = start + length;
    if (kind < 0xC)
        return 0;
    if (length < (size_t)width)
        return WALK_MALFORMED;
    if (depth == 0)
        return WALK_MALFORMED;
    uint32_t count = width == 4 ? u32(w->data + start) : w->data[start];
    size_t inside = start + (size_t)width;
    walk inner = {w->data, *at, w->elements, w->empty};
    int wrong = 0;
    if (kind < 0xE) {
        for (uint32_t i = 0; i < count && !wrong; i++)
            wrong = walk_value(&inner, &inside, depth - 1);
    } else {
        if (inside >= inner.end)
            return WALK_MALFORMED;
        unsigned char element = w->data[inside];
        if (element == 0) {
            inside++;
            wrong = walk_value(&inner, &inside, depth - 1);
            if (wrong || inside >= inner.end)
                return wrong ? wrong : WALK_MALFORMED;
            element = w->data[inside];
        }
        inside++;
        if (fixed_size(element) == 0) {
            if (count > inner.empty)
                return WALK_TOO_MUCH;
            inner.empty -= count;
        } else if (count > inner.end - inside) {
            return WALK_MALFORMED;
        }
        if (count > inner.elements)
            return WALK_TOO_MUCH;
        inner.elements -= count;
        for (uint32_t i = 0; i < count && !wrong && fixed_size(element) < 0; i++)
            wrong = walk_body(&inner, element, &inside, depth - 1);
    }
    w->elements = inner.elements;
    w->empty = inner.empty;
    return wrong;
}

static int walk_value(walk *w, size_t *at, int depth)
{
    for (int described = 0; described <= DEPTH; described++) {
        if (*at >= w->end)
            return WALK_MALFORMED;
        if (w->elements == 0)
            return WALK_TOO_MUCH;
        w->elements--;
        unsigned char code = w->data[(*at)++];
        if (code != 0)
            return walk_body(w, code, at, depth);
        if (*at >= w->end || w->data[*at] == 0)
            return WALK_MALFORMED;
        int wrong = walk_value(w, at, depth);
        if (wrong)
            return wrong;
    }
    return WALK_MALFORMED;
}

/* How long the performative at `at` is, of which `left` bytes are there; 0 if its size is not there, -1 if it is none. */
static int64_t performative_size(const unsigned char *at, size_t left)
{
    if (left < 2)
        return 0;
    if (at[0] != 0)
        return -1;
    size_t body;
    if (at[1] == 0x53)
        body = 3;
    else if (at[1] == 0x80)
        body = 10;
    else if (at[1] == 0xA3 && left >= 3)
        body = 3 + (size_t)at[2];
    else
        return at[1] == 0xA3 ? 0 : -1;
    if (left <= body)
        return 0;
    if (at[body] == 0x45)
        return (int64_t)body + 1;
    if (at[body] == 0xC0)
        return left < body + 2 ? 0 : (int64_t)body + 2 + at[body + 1];
    if (at[body] == 0xD0)
        return left < body + 5 ? 0 : (int64_t)body + 5 + u32(at + body + 1);
    return -1;
}

/* Nearly all frames: a transfer whose fields are a short list of no lists, maps or arrays, so that it cannot claim more
   than it has. `left` bytes of it are there. */
static int is_flat_transfer(const unsigned char *frame, size_t left, uint32_t size)
{
    static const unsigned char beginning[] = {0x00, 0x53, 0x14, 0xC0};
    int plain = left > 12 && frame[4] == 2 && frame[5] == 0 && frame[6] == 0 && frame[7] <= 1;
    if (!plain || memcmp(frame + FRAME_HEADER, beginning, sizeof beginning) != 0)
        return 0;
    size_t end = 13 + (size_t)frame[12];
    if (end >= left || end > size)
        return 0;
    for (size_t at = 13; at < end; at++) {
        unsigned char code = frame[at];
        /* c0, c1, d0, d1, e0, f0 */
        if (code >= 0xC0 && (code & 0x0E) == 0 && ((code & 1) == 0 || code < 0xE0))
            return 0;
    }
    return 1;
}

int inspect_frames(const char *bytes, size_t size, size_t at, uint64_t *skip, uint32_t frame_bytes_max,
                   uint32_t frame_elements_max, uint32_t empty_max, uint32_t *elements, uint32_t elements_max,
                   size_t *end)
{
    const unsigned char *data = (const unsigned char *)bytes;
    for (;;) {
        if (*skip > 0) {
            size_t passed = *skip < size - at ? (size_t)*skip : size - at;
            at += passed;
            *skip -= passed;
        }
        *end = at;
        if (at == size || *elements >= elements_max)
            return 0;
        if (size - at < FRAME_HEADER)
            return UNFINISHED;
        uint32_t frame = u32(data + at);
        uint32_t offset = (uint32_t)data[at + 4] * 4;
        if (frame > frame_bytes_max || offset < FRAME_HEADER || offset > frame || data[at + 5] != 0)
            return NO_FRAME;
        if (is_flat_transfer(data + at, size - at, frame)) {
            *skip = frame;
            continue;
        }
        if (offset < frame) {
            if (size - at <= offset)
                return UNFINISHED;
            const unsigned char *body = data + at + offset;
            int64_t length = performative_size(body, size - at - offset);
            if (length < 0 || length > (int64_t)(frame - offset))
                return WALK_MALFORMED;
            if (length == 0)
                return frame - offset > size - at - offset ? UNFINISHED : WALK_MALFORMED;
            if ((size_t)length > size - at - offset)
                return UNFINISHED;
            walk w = {body, (size_t)length, frame_elements_max, empty_max};
            size_t inside = 0;
            int wrong = walk_value(&w, &inside, DEPTH);
            if (wrong)
                return wrong;
            *elements += frame_elements_max - w.elements;
        }
        *skip = frame;
    }
}

size_t step_over_deliveries(const char *bytes, size_t size, size_t at)
{
    const unsigned char *data = (const unsigned char *)bytes;
    while (at < size && size - at >= FRAME_HEADER + 3) {
        const unsigned char *head = data + at;
        uint32_t frame = u32(head);
        int usual = head[4] == 2 && head[8] == 0 && head[9] == 0x53 && (head[10] == 0x14 || head[10] == 0x15);
        if (frame != FRAME_HEADER && !(usual && frame > FRAME_HEADER + 3))
            break;
        at += frame;
    }
    return at;
}

enum {
    FLOW_FIELDS_AT = 14,
    FLOW_FIELDS_MIN = 4,
    HANDLE = 4,
    ECHO = 9,
};

static int is_among(const uint64_t *links, int count, uint64_t link)
{
    int low = 0;
    while (low < count) {
        int middle = low + (count - low) / 2;
        if (links[middle] == link)
            return 1;
        if (links[middle] < link)
            low = middle + 1;
        else
            count = middle;
    }
    return 0;
}

/* Whether a frame, all of which is there, is a flow as `step_over_usual` takes it: what `_usual_flow` in `frames.py` knows. */
static int is_usual_flow(const unsigned char *frame, size_t size, const uint64_t *links, int count)
{
    static const unsigned char beginning[] = {0x00, 0x53, 0x13, 0xC0};
    if (size < FLOW_FIELDS_AT || frame[4] != 2 || memcmp(frame + FRAME_HEADER, beginning, sizeof beginning) != 0)
        return 0;
    size_t at = FLOW_FIELDS_AT;
    int fields = frame[at - 1];
    if (size != at - 1 + frame[at - 2] || fields < FLOW_FIELDS_MIN)
        return 0;
    uint64_t channel = (uint64_t)frame[6] << 8 | frame[7];
    for (int field = 0; field < fields && field <= ECHO; field++) {
        if (at >= size)
            return 0;
        unsigned char code = frame[at++];
        size_t width;
        switch (code) {
        case 0x40: case 0x41: case 0x42: case 0x43: width = 0; break;
        case 0x52: case 0x56: width = 1; break;
        case 0x70: width = 4; break;
        default: return 0;
        }
        if (width > size - at || (code == 0x40 && field > 0 && field < HANDLE) || (code == 0x56 && frame[at] > 1))
            return 0;
        if (field == HANDLE && code != 0x40) {
            if (code != 0x43 && code != 0x52 && code != 0x70)
                return 0;
            uint32_t handle = width == 4 ? u32(frame + at) : width == 1 ? frame[at] : 0;
            if (!is_among(links, count, channel << 32 | handle))
                return 0;
        } else if (field == ECHO && (code == 0x41 || (code == 0x56 && frame[at] == 1))) {
            return 0;
        }
        at += width;
    }
    return 1;
}

size_t step_over_usual(const char *bytes, size_t size, size_t at, uint32_t frame_bytes_max, const uint64_t *links,
                       int count)
{
    const unsigned char *data = (const unsigned char *)bytes;
    for (;;) {
        at = step_over_deliveries(bytes, size, at);
        if (at >= size || size - at < FRAME_HEADER)
            return at;
        uint32_t frame = u32(data + at);
        if (frame > size - at || frame > frame_bytes_max || !is_usual_flow(data + at, frame, links, count))
            return at;
        at += frame;
    }
}

static int has_bytes(const unsigned char *data, size_t begin, size_t end, const char *wanted, size_t size)
{
    while (size > 0 && begin + size <= end) {
        const unsigned char *found = memchr(data + begin, wanted[0], end - begin - size + 1);
        if (found == NULL)
            return 0;
        if (memcmp(found, wanted, size) == 0)
            return 1;
        begin = (size_t)(found - data) + 1;
    }
    return 0;
}

static int same_bytes(const unsigned char *data, size_t size, size_t at, const char *piece, size_t piece_size)
{
    return at <= size && piece_size <= size - at && memcmp(data + at, piece, piece_size) == 0;
}

enum {
    SHORT_DATA = 0xA0,
    SHORT_TEXT = 0xA1,
    LONG_DATA = 0xB0,
    LONG_TEXT = 0xB1,
    SHORT_MAP = 0xC1,
    LONG_MAP = 0xD1,
    DATA_SECTION = 0x75,
    VALUE_SECTION = 0x77,
};

/* Where the keys and values of the map lie whose size is at `at`; 0 if it is not whole. */
static size_t map_extent(const unsigned char *data, size_t size, size_t *at, int code)
{
    size_t width = code == SHORT_MAP ? 1 : 4;
    if (size < *at + 2 * width)
        return 0;
    size_t length = width == 1 ? data[*at] : u32(data + *at);
    size_t end = *at + width + length;
    *at += 2 * width;
    return length >= width && end <= size ? end : 0;
}

static int is_of_layout(const unsigned char *data, size_t size, const layout *l)
{
    if (!same_bytes(data, size, 0, l->prefix, l->prefix_size)
        || !same_bytes(data, size, l->tail_at, l->tail, l->tail_size)
        || !same_bytes(data, size, l->middle_at, l->middle, l->middle_size)
        || !same_bytes(data, size, l->id_end, l->correlated, l->correlated_size))
        return 0;
    size_t at = l->tail_end;
    int last = l->last;
    if (l->has_properties) {
        size_t end = map_extent(data, size, &at, last);
        if (end == 0 || end - at > l->map_bytes_max)
            return 0;
        if (has_bytes(data, at, end, l->forbidden, l->forbidden_size)
            || has_bytes(data, at, end, l->forbidden_too, l->forbidden_too_size))
            return 0;
        if (size < end + 4 || data[end] != 0 || data[end + 1] != 0x53
            || (data[end + 2] != DATA_SECTION && data[end + 2] != VALUE_SECTION))
            return 0;
        last = data[end + 3];
        at = end + 4;
    }
    if (last == SHORT_DATA || last == SHORT_TEXT) {
        if (size < at + 1 || at + 1 + data[at] != size)
            return 0;
    } else if (last != LONG_DATA && last != LONG_TEXT) {
        return 0;
    } else if (size < at + 4 || at + 4 + (size_t)u32(data + at) != size) {
        return 0;
    }
    if (size >= l->last_bytes_size && memcmp(data + size - l->last_bytes_size, l->last_bytes, l->last_bytes_size) == 0)
        return 0;
    for (size_t i = l->id_at; i < l->id_end; i++)
        if (data[i] >= 0x80)
            return 0;
    return 1;
}

int match_layout(const char *bytes, const uint32_t *ends, int first, int count, const layout *layout, char *ids)
{
    size_t id_size = layout->id_end - layout->id_at;
    uint32_t start = first > 0 ? ends[first - 1] : 0;
    int matched = 0;
    for (int i = first; i < count; i++, matched++) {
        const unsigned char *data = (const unsigned char *)bytes + start;
        if (!is_of_layout(data, ends[i] - start, layout))
            break;
        memcpy(ids + (size_t)matched * id_size, data + layout->id_at, id_size);
        start = ends[i];
    }
    return matched;
}

_Bool consecutive(const char *tags, const char *sizes, int count, uint64_t number_max, uint64_t *number)
{
    uint64_t next = 0;
    for (int i = 0; i < count; i++) {
        const unsigned char *tag = (const unsigned char *)tags + (size_t)i * TAG_BYTES_MAX;
        uint64_t value = 0;
        if (sizes[i] < 1 || sizes[i] > 8)
            return 0;
        for (int at = 0; at < sizes[i]; at++)
            value = value << 8 | tag[at];
        if (value > number_max || (i > 0 && value != next))
            return 0;
        if (i == 0)
            *number = value;
        next = value + 1;
    }
    return count > 0;
}

/* -- bodies that pass the engine by -- */

enum {
    TRANSFER = 0x14,
    MARK_BYTES = 16,
    LIST_AT = 11,
    FIELDS_AT = 14,
    MORE = 5,
    RESUME = 8,
    ABORTED = 9,
    GIVEN_AT_ONCE = 8192,
};

_Bool begin_bypass(bypass *way, uint32_t body_min)
{
    memset(way, 0, sizeof *way);
    way->body_min = body_min;
    return getentropy(way->mark, MARK_BYTES) == 0;
}

static void write_token(const bypass *way, char *token, uint64_t number, uint32_t begin, uint32_t size)
{
    memcpy(token, way->mark, MARK_BYTES);
    memcpy(token + MARK_BYTES, &number, sizeof number);
    memcpy(token + MARK_BYTES + 8, &begin, sizeof begin);
    memcpy(token + MARK_BYTES + 12, &size, sizeof size);
}

_Bool is_apart(const bypass *way, const char *data, size_t size, body *place)
{
    if (size < TOKEN_BYTES || memcmp(data + size - TOKEN_BYTES, way->mark, MARK_BYTES) != 0)
        return 0;
    const char *token = data + size - TOKEN_BYTES;
    memcpy(&place->number, token + MARK_BYTES, sizeof place->number);
    memcpy(&place->begin, token + MARK_BYTES + 8, sizeof place->begin);
    memcpy(&place->size, token + MARK_BYTES + 12, sizeof place->size);
    return 1;
}

/* The bytes of a simple value, or of a short binary or text, behind its constructor; -1 if it is something else. */
static int simple_size(const unsigned char *data, size_t at, size_t end, unsigned char code)
{
    if ((code >> 4) == 0xA)
        return at < end ? 1 + data[at] : -1;
    return fixed_size(code);
}

/* Where in a frame, of which `left` bytes are there, a message begins that ends with it: a transfer of the usual form;
   0 if it is none, or not enough is there. */
static size_t message_at(const unsigned char *frame, uint32_t size, size_t left)
{
    static const unsigned char beginning[] = {0x00, 0x53, TRANSFER, 0xC0};
    if (left < FIELDS_AT || frame[4] != 2 || frame[5] != 0)
        return 0;
    if (memcmp(frame + FRAME_HEADER, beginning, sizeof beginning) != 0)
        return 0;
    size_t end = LIST_AT + 2 + (size_t)frame[LIST_AT + 1], at = FIELDS_AT;
    if (end > size || end > left)
        return 0;
    for (int field = 0; field < frame[LIST_AT + 2]; field++) {
        if (at >= end)
            return 0;
        unsigned char code = frame[at++];
        if ((field == MORE || field == RESUME || field == ABORTED) && code != 0x40 && code != 0x42
            && !(code == 0x56 && at < end && frame[at] == 0))
            return 0;
        if (code == 0) {
            /* A delivery's state: a short list. */
            if (end - at < 4 || frame[at] != 0x53 || (frame[at + 2] != 0xC0 && frame[at + 2] != 0x45))
                return 0;
            at += frame[at + 2] == 0x45 ? 3 : 4 + (size_t)frame[at + 3];
        } else {
            int length = simple_size(frame, at, end, code);
            if (length < 0)
                return 0;
            at += (size_t)length;
        }
    }
    return at == end ? end : 0;
}

static _Bool give(void *transport, const char *bytes, size_t size)
{
    while (size > 0) {
        ssize_t taken = proton.transport_push(transport, bytes, size);
        if (taken <= 0)
            return 0;
        bytes += taken;
        size -= (size_t)taken;
    }
    return 1;
}

/* What is gathered before it is given to the engine. */
typedef struct {
    void *transport;
    size_t size;
    char bytes[GIVEN_AT_ONCE];
} gathered;

static _Bool add(gathered *to, const char *bytes, size_t size)
{
    if (size > GIVEN_AT_ONCE - to->size) {
        if (!give(to->transport, to->bytes, to->size))
            return 0;
        to->size = 0;
    }
    if (size > GIVEN_AT_ONCE)
        return give(to->transport, bytes, size);
    memcpy(to->bytes + to->size, bytes, size);
    to->size += size;
    return 1;
}

/* Whether more of a message may follow a frame, of which `left` bytes are there, and which is none that `message_at`
   finds: not if it is another performative than a transfer. */
static _Bool may_begin(const unsigned char *frame, size_t left)
{
    return left < LIST_AT || frame[4] != 2 || frame[8] != 0 || frame[9] != 0x53 || frame[10] == TRANSFER;
}

int receive_apart(bypass *way, void *transport, const char *data, size_t size, uint64_t number, size_t *left)
{
    *left = 0;
    gathered out;
    out.transport = transport;
    out.size = 0;
    /* From `from` on nothing was given yet. */
    size_t at = 0, from = 0;
    int count = 0;
    /* Behind the beginning of a message nothing passes by before that was read: its end must not be a token. */
    _Bool is_begun = (way->skip > 0 || way->begun_size > 0) && way->is_begun;
    while (at < size) {
        if (way->skip > 0) {
            size_t passed = way->skip < size - at ? (size_t)way->skip : size - at;
            at += passed;
            way->skip -= passed;
            continue;
        }
        if (way->begun_size > 0 || size - at < 4) {
            is_begun = way->is_begun = 1;
            way->begun = way->begun << 8 | (unsigned char)data[at++];
            if (++way->begun_size < 4)
                continue;
            /* What is no frame the engine refuses, and nothing behind it matters. */
            way->skip = way->begun < FRAME_HEADER ? UINT64_MAX : way->begun - 4;
            way->begun = way->begun_size = 0;
            continue;
        }
        const unsigned char *frame = (const unsigned char *)data + at;
        uint32_t frame_size = u32(frame);
        if (frame_size < FRAME_HEADER) {
            way->skip = UINT64_MAX;
            continue;
        }
        size_t begin = message_at(frame, frame_size, size - at);
        way->is_begun = begin == 0 && frame_size > FRAME_HEADER && may_begin(frame, size - at);
        is_begun = is_begun || way->is_begun;
        if (begin == 0 || is_begun || frame_size - begin < way->body_min || at + begin > UINT32_MAX) {
            way->skip = frame_size;
            continue;
        }
        if (frame_size > size - at) {
            *left = size - at;
            size = at;
            break;
        }
        char token[TOKEN_BYTES], head[4];
        uint32_t small = (uint32_t)begin + TOKEN_BYTES;
        for (int i = 0; i < 4; i++)
            head[i] = (char)(small >> (24 - 8 * i));
        write_token(way, token, number, (uint32_t)(at + begin), (uint32_t)(frame_size - begin));
        if (!add(&out, data + from, at - from) || !add(&out, head, sizeof head)
            || !add(&out, data + at + 4, begin - 4) || !add(&out, token, TOKEN_BYTES))
            return count;
        at += frame_size;
        from = at;
        count++;
    }
    if (add(&out, data + from, size - from))
        give(transport, out.bytes, out.size);
    return count;
}

size_t send_apart(const bypass *way, void *link, int count, const char *bytes, const uint32_t *ends, const char *tags,
               void *deliveries, uint64_t number)
{
    void **made = deliveries;
    uint32_t start = 0;
    size_t apart = 0;
    for (int i = 0; i < count; i++) {
        uint32_t size = ends[i] - start;
        char token[TOKEN_BYTES];
        tag_bytes tag = {SENT_TAG_BYTES, tags + (size_t)i * SENT_TAG_BYTES};
        made[i] = proton.delivery(link, tag);
        if (size >= way->body_min) {
            write_token(way, token, number, start, size);
            proton.link_send(link, token, TOKEN_BYTES);
            apart += size;
        } else {
            proton.link_send(link, bytes + start, size);
        }
        proton.link_advance(link);
        start = ends[i];
    }
    return apart;
}

void send_tokens(const bypass *way, void *link, int count, const uint32_t *sizes, const char *tags, void *deliveries,
                 uint64_t number)
{
    void **made = deliveries;
    for (int i = 0; i < count; i++) {
        char token[TOKEN_BYTES];
        tag_bytes tag = {SENT_TAG_BYTES, tags + (size_t)i * SENT_TAG_BYTES};
        made[i] = proton.delivery(link, tag);
        write_token(way, token, number + (uint64_t)i, 0, sizes[i]);
        proton.link_send(link, token, TOKEN_BYTES);
        proton.link_advance(link);
    }
}

int find_apart(const bypass *way, char *data, size_t size, size_t *at, body *found, int count_max)
{
    int count = 0;
    while (count < count_max && *at < size && size - *at >= FRAME_HEADER) {
        unsigned char *frame = (unsigned char *)data + *at;
        uint32_t frame_size = u32(frame);
        if (frame_size < FRAME_HEADER || frame_size > size - *at)
            break;
        *at += frame_size;
        if (frame_size < LIST_AT + TOKEN_BYTES || frame[10] != TRANSFER || !is_apart(way, data, *at, &found[count]))
            continue;
        uint32_t whole = frame_size - TOKEN_BYTES + found[count].size;
        for (int i = 0; i < 4; i++)
            frame[i] = (unsigned char)(whole >> (24 - 8 * i));
        found[count++].at = *at - TOKEN_BYTES;
    }
    return count;
}
