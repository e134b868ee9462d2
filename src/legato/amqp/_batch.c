/* Runs of deliveries through Proton's engine in one call: what `deliveries.py` and `link.py` do one by one. */

#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>

#include "_batch.h"

enum {
    TAG_BYTES_MAX = 32,
    SENT_TAG_BYTES = 8,
    RECEIVED = 0x23,
    ACCEPTED = 0x24,
    RELEASED = 0x26,
    TRANSACTIONAL = 0x34,
    SETTLED = 0x80,
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

int take_transfers(void *collector, int delivery_type, void *link, int count_max, size_t message_bytes_max,
                   char *bytes, size_t bytes_max, void *deliveries, uint32_t *ends, char *settled,
                   char *tags, char *tag_sizes)
{
    void **taken = deliveries;
    size_t used = 0;
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
        tag_bytes tag = {0, NULL};
        if (tags != NULL) {
            tag = proton.delivery_tag(delivery);
            if (tag.size > TAG_BYTES_MAX)
                break;
        }
        /* The end of an empty message is reported as an error, and so is an aborted one: only the engine knows. */
        if (size == 0 || proton.link_recv(link, bytes + used, size) != (ssize_t)size)
            break;
        if (tags != NULL) {
            tag_sizes[count] = (char)tag.size;
            if (tag.size > 0)
                memcpy(tags + (size_t)count * TAG_BYTES_MAX, tag.start, tag.size);
        }
        used += size;
        taken[count] = delivery;
        ends[count] = (uint32_t)used;
        settled[count] = proton.delivery_settled(delivery);
        proton.link_advance(link);
        if (settled[count])
            proton.delivery_settle(delivery);
        proton.collector_pop(collector);
        count++;
    }
    return count;
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
        if (proton.link_current(link) == delivery)
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
